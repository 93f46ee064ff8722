"""Health: three forms, one of them in Portuguese."""

from plumbline.tasks.forms.suite.declaration import Form, InOrder, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    clock,
    code,
    day_between,
    days_after,
    first_name,
    full_name,
    last_name,
    papers,
    phone,
    phrase,
    prose,
    some_of,
    whole,
)
from plumbline.tasks.forms.suite.fields import (
    area,
    box,
    boxes,
    consent,
    date,
    email,
    file,
    multiselect,
    number,
    radio,
    select,
    shown,
    tel,
    text,
    time,
)

DIET = Form(
    name="dietary-intake",
    domain="health",
    title="Dietary Intake Questionnaire",
    button="Send Answers",
    asides=("The scale in room 2 was calibrated.",),
    pages=(
        Page(
            (
                text("Name", full_name(), alias="Respondent"),
                text("Clinic code", code("C-###"), maxlength=5),
                date("Interview date", day_between("2026-01-07", "2026-11-27"), alias="Date of the interview"),
                number("Height in cm", whole(145, 205), "100", "230"),
                number(
                    "Weight in kg", lambda drawing: f"{drawing.rng.integers(450, 1300) / 10:g}", "30", "250", step="0.1"
                ),
                radio("Diet", "Everything|Vegetarian|Vegan|Pescatarian"),
                boxes("Allergies", "Eggs|Fish|Gluten|Milk|Nuts|Soy", draw=some_of(1, 3), filled=0.7),
                time("Usual breakfast", clock(5, 10), filled=0.85, alias="Breakfast time"),
                number("Glasses of water", whole(1, 14), "0", "30"),
                select("Coffee", "Never|Some days|Daily|Several a day"),
                box("Takes supplements", 0.5),
                text(
                    "Which supplements",
                    phrase("Iron|Zinc|Vitamin D|Magnesium", "tablets|drops|powder", "daily|weekly|on and off"),
                    shown_if=shown("takes_supplements"),
                ),
                area(
                    "Yesterday's meals",
                    prose(
                        "{Porridge|Bread|Rice|Eggs} with {#} {almonds|olives|raisins}.",
                        "{Soup|Salad|Stew|Pasta} at {noon|a friend's house|work}.",
                        "A {pear|biscuit|yoghurt} late on {day}.",
                        count=3,
                        joint="\n",
                    ),
                ),
            )
        ),
    ),
)
DEVICE = Form(
    name="device-return",
    domain="health",
    title="Medical Device Return",
    button="Register Return",
    rules=(InOrder("delivered_on", "fault_seen_on"),),
    asides=("The courier comes twice a week.", "Batteries travel in a separate bag."),
    pages=(
        Page(
            (
                text("Contact first name", first_name(), required=True, alias="First name"),
                text("Contact last name", last_name(), required=True, alias="Last name"),
                email("Contact address", address_of(), required=True, alias="Email of the contact"),
                select("Product", "Glucose meter|Hearing aid|Infusion pump|Nebuliser|Thermometer", required=True),
                text("Lot number", code("L######"), required=True, pattern="L[0-9]{6}", hint="L and six digits"),
                number("Units", whole(1, 60), "1", "500", required=True),
                date("Delivered on", day_between("2025-06-01", "2026-05-31"), required=True),
                date("Fault seen on", days_after("delivered_on", 0, 200), required=True),
                radio("Severity", "Cosmetic|Inconvenient|Dangerous", required=True),
                box("Patient was harmed", 0.5, alias="Was a patient harmed"),
                text("Incident number", code("INC-####"), shown_if=shown("patient_was_harmed"), required=True),
                multiselect("Symptoms", "Alarm|Crack|Leak|No power|Odour|Wrong reading", required=True),
                file("Photo", papers("photo", ".jpg", ".png"), ".jpg", ".png", filled=0.7),
                area(
                    "What happened",
                    prose(
                        "The {display|cable|valve|casing} failed after {#} uses.",
                        "On {day} it {beeped|smelled|froze} for {#} minutes.",
                        "The {nurse|patient|porter} noticed it {first|at night|too late}.",
                    ),
                    required=True,
                    minlength=20,
                    maxlength=500,
                ),
            )
        ),
    ),
)
VACCINE = Form(
    name="agendamento-de-vacina",
    domain="health",
    title="Agendamento de Vacina",
    button="Enviar agendamento",
    language="pt",
    asides=("O posto ganhou uma sala de espera nova.", "Leve um documento com foto."),
    pages=(
        Page(
            (
                text("Paciente", full_name(), required=True, alias="Nome do paciente"),
                text(
                    "Cartão do SUS",
                    code("### #### #### ####"),
                    required=True,
                    maxlength=18,
                    pattern="[0-9]{3}( [0-9]{4}){3}",
                    hint="000 0000 0000 0000",
                ),
                date("Nascimento", day_between("1940-01-01", "2020-12-31"), required=True, alias="Data de nascimento"),
                tel("Telefone de contato", phone(), required=True),
                select("Vacina", "Febre amarela|Gripe|Hepatite B|Tétano|Tríplice viral", required=True),
                radio("Dose", "Primeira|Segunda|Reforço", required=True),
                date("Data desejada", day_between("2026-02-01", "2026-09-30"), required=True),
                time("Hora desejada", clock(8, 17, 30), required=True),
                select("Posto", "Centro|Jardim América|Ponte Nova|Vila Rica", required=True, alias="Unidade de saúde"),
                box("Tem alergia", 0.5, alias="Alergia conhecida"),
                text(
                    "Qual alergia",
                    phrase("Alergia a", "ovo|látex|gelatina|poeira", "leve|forte|desde criança"),
                    shown_if=shown("tem_alergia"),
                    required=True,
                ),
                boxes("Grupo prioritário", "Gestante|Idoso|Professor|Profissional de saúde", filled=0.6),
                consent("Autorizo o envio de lembretes", named_by="wrap"),
            )
        ),
    ),
)
FORMS = (DIET, DEVICE, VACCINE)
