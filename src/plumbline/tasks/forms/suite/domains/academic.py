"""Research and teaching: five forms, one of them a wizard, one in Portuguese."""

from plumbline.tasks.forms.suite.declaration import Form, InOrder, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    clock,
    code,
    day_between,
    days_after,
    full_name,
    minutes_after,
    papers,
    phone,
    phrase,
    postal_address,
    prose,
    secret,
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
    password,
    radio,
    select,
    shown,
    tel,
    text,
    time,
)

INSTRUMENT = Form(
    name="instrument-booking",
    domain="academic",
    title="Shared Instrument Booking",
    button="Book Instrument",
    rules=(InOrder("start_time", "end_time"),),
    asides=("The core facility was repainted last month.", "Coffee is not allowed near the benches."),
    pages=(
        Page(
            (
                text("Researcher", full_name(), required=True, alias="Name of the researcher"),
                email("University email", address_of(), required=True),
                text(
                    "Project code", code("PRJ-####"), required=True, pattern="PRJ-[0-9]{4}", hint="PRJ- and four digits"
                ),
                select(
                    "Instrument",
                    "Confocal microscope|Mass spectrometer|Flow cytometer|X-ray diffractometer|Cryostat",
                    required=True,
                    alias="Device",
                ),
                date("Day of use", day_between("2026-02-01", "2026-11-30"), required=True),
                time("Start time", clock(8, 15), required=True),
                time("End time", minutes_after("start_time", 45, 90, 120, 210), required=True),
                number("Number of samples", whole(1, 96), "1", "96", alias="Samples"),
                box("Operator needed", 0.5, alias="Needs an operator"),
                select("Training level", "None yet|Basic|Independent user", filled=0.85),
                area(
                    "Sample notes",
                    prose(
                        "{Fixed|Frozen|Dried} {tissue|powder|film} in {ethanol|buffer|argon}, {#} vials.",
                        "Please keep the stage at {#} degrees before the run.",
                        "The last series from {day} showed {drift|noise|bleaching} after {#} minutes.",
                    ),
                    filled=0.8,
                    maxlength=400,
                ),
            )
        ),
    ),
)
LIBRARY = Form(
    name="library-card",
    domain="academic",
    title="Library Card Request",
    button="Request Card",
    asides=("The reading room closes early on Fridays.",),
    pages=(
        Page(
            (
                text("Full name", full_name(), required=True),
                date("Date of birth", day_between("1958-01-01", "2007-12-31"), required=True, alias="Born on"),
                text("Home address", postal_address(), maxlength=80, alias="Lives at"),
                tel("Phone number", phone(), named_by="wrap"),
                radio("Reader type", "Student|Staff|Visitor|Alumni", required=True),
                text(
                    "Student number",
                    code("S######"),
                    shown_if=shown("reader_type", "student"),
                    required=True,
                    maxlength=7,
                ),
                boxes("Branches", "Main hall|Law|Medicine|Music|Maps", alias="Branch libraries"),
                password("Catalogue password", secret(), required=True, minlength=8),
                box("Newsletter", 0.5, named_by="wrap", alias="Wants the newsletter"),
                consent("I accept the house rules", named_by="wrap"),
            )
        ),
    ),
)
THESIS = Form(
    name="thesis-defence",
    domain="academic",
    title="Thesis Defence Slot",
    button="Propose Slot",
    rules=(InOrder("earliest_date", "latest_date"),),
    asides=("The old lecture hall has no projector.", "Gowns are optional."),
    pages=(
        Page(
            (
                text("Candidate", full_name(), required=True),
                text(
                    "Thesis title",
                    phrase(
                        "On the|Towards a|Limits of the|A new",
                        "stability|geometry|history|economics|acoustics",
                        "of coastal|of mountain|of urban|of migrating|of early",
                        "cities|rivers|markets|birds|printers|glaciers",
                    ),
                    required=True,
                    maxlength=120,
                    alias="Title of the thesis",
                ),
                select("Degree", "MSc|MPhil|PhD|DSc", required=True),
                text("Supervisor", full_name(1), required=True),
                email("Supervisor email", address_of(1), named_by="aria"),
                date("Earliest date", day_between("2026-03-01", "2026-08-31"), required=True),
                date("Latest date", days_after("earliest_date", 7, 60), required=True),
                radio("Format", "In person|Remote|Hybrid", required=True, alias="Mode of the defence"),
                multiselect("Committee fields", "Biology|Chemistry|Economics|Geology|History|Physics|Statistics"),
                file(
                    "Abstract file",
                    papers("abstract", ".pdf", ".docx"),
                    ".pdf",
                    ".docx",
                    required=True,
                    alias="Abstract",
                ),
                area(
                    "Public summary",
                    prose(
                        "The work asks how {rivers|towns|prices|dialects} change within {#} years.",
                        "It combines {archives|sensors|interviews|models} from {#} places.",
                        "A surprise was the {sudden|slow|uneven} {rise|loss|return} after {#} seasons.",
                    ),
                ),
            )
        ),
    ),
)
EXCHANGE = Form(
    name="exchange-nomination",
    domain="academic",
    title="Student Exchange Nomination",
    button="Send Nomination",
    rules=(InOrder("arrival", "departure"),),
    asides=("Last year's group missed the ferry.", "The partner list is revised every spring."),
    pages=(
        Page(
            (
                text("Student name", full_name(), required=True),
                email("Student email", address_of(), required=True),
                date("Birth date", day_between("1999-01-01", "2006-12-31"), required=True),
                text(
                    "Passport number",
                    code("@#######"),
                    required=True,
                    pattern="[A-Z][0-9]{7}",
                    hint="a letter and seven digits",
                ),
            ),
            "Student",
        ),
        Page(
            (
                select("Host university", "Alderport|Brackenfield|Corvale|Eastmere|Glenrowan", required=True),
                select("Study field", "Engineering|Humanities|Law|Life sciences|Mathematics|Music"),
                number(
                    "Current average",
                    lambda drawing: f"{drawing.rng.integers(50, 100) / 10:g}",
                    "0",
                    "10",
                    step="0.1",
                    required=True,
                    alias="Grade average",
                ),
                boxes("Languages", "English|French|German|Portuguese|Spanish"),
            ),
            "Studies",
        ),
        Page(
            (
                date("Arrival", day_between("2026-08-15", "2026-09-30"), required=True),
                date("Departure", days_after("arrival", 90, 300), required=True),
                radio("Housing", "Dormitory|Host family|Own arrangement", required=True),
                box("Needs a visa", 0.5, alias="Visa needed"),
                text(
                    "Consulate",
                    phrase("Consulate", "Alderport|Corvale|Dunhaven|Fenwick|Harrowby"),
                    shown_if=shown("needs_a_visa"),
                    required=True,
                ),
                file("Transcript", papers("transcript", ".pdf"), ".pdf", required=True, alias="Transcript of records"),
            ),
            "Stay",
        ),
    ),
)
COURSE = Form(
    name="curso-de-extensao",
    domain="academic",
    title="Inscrição em Curso de Extensão",
    button="Enviar inscrição",
    language="pt",
    asides=("O estacionamento do campus está em obras.", "As turmas do ano passado lotaram em dois dias."),
    pages=(
        Page(
            (
                text("Nome completo", full_name(), required=True, alias="Nome do aluno"),
                text(
                    "CPF",
                    code("###.###.###-##"),
                    required=True,
                    pattern="[0-9]{3}[.][0-9]{3}[.][0-9]{3}-[0-9]{2}",
                    hint="000.000.000-00",
                    named_by="wrap",
                ),
                email("E-mail", address_of(), required=True),
                tel("Telefone", phone(), alias="Celular"),
                date("Data de nascimento", day_between("1960-01-01", "2007-12-31"), required=True),
                select("Curso", "Fotografia|Horta urbana|Inglês instrumental|Robótica|Teatro", required=True),
                radio("Turno", "Manhã|Tarde|Noite", required=True, alias="Período"),
                boxes("Como soube do curso", "Amigos|Cartaz|Internet|Rádio", filled=0.8),
                number("Anos de estudo", whole(4, 20), "0", "40"),
                box("Aluno da universidade", 0.4, named_by="wrap"),
                text("Matrícula", code("########"), shown_if=shown("aluno_da_universidade"), required=True),
                area(
                    "Motivo do interesse",
                    prose(
                        "Quero {mudar de área|ensinar meus filhos|abrir um negócio} em {#} meses.",
                        "Já fiz {#} aulas com um {vizinho|tio|professor} e gostei.",
                        "Trabalho toda {day}, por isso prefiro esse horário.",
                    ),
                    maxlength=300,
                ),
            )
        ),
    ),
)
FORMS = (INSTRUMENT, LIBRARY, THESIS, EXCHANGE, COURSE)
