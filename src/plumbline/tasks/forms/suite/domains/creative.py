"""Arts: three forms, one of them in Portuguese."""

from plumbline.tasks.forms.suite.declaration import Form, InOrder, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    clock,
    day_between,
    days_after,
    first_name,
    full_name,
    last_name,
    papers,
    phone,
    phrase,
    prose,
    street,
    website,
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
    number,
    radio,
    select,
    shown,
    tel,
    text,
    time,
    url,
)

FILM = Form(
    name="film-permit",
    domain="creative",
    title="Street Filming Permit",
    button="Apply for Permit",
    rules=(InOrder("first_day", "last_day"),),
    asides=("Pigeons are not covered by the permit.", "The town band rehearses on Thursdays."),
    pages=(
        Page(
            (
                text(
                    "Production title",
                    phrase(
                        "The Last|A Quiet|Beyond the|Our Second",
                        "Ferry|Orchard|Winter|Letter|Harbour",
                        "|Returns|at Dawn|of Corvale",
                    ),
                    required=True,
                    alias="Working title",
                ),
                text("Producer", full_name(), required=True),
                tel("Phone on set", phone(), required=True),
                email("Office email", address_of()),
                text("Street", street(), required=True, alias="Filming location"),
                date("First day", day_between("2026-03-01", "2026-10-01"), required=True),
                date("Last day", days_after("first_day", 0, 12), required=True),
                time("Call time", clock(5, 20, 30), required=True),
                number("Crew size", whole(3, 80), "1", "200", required=True),
                select(
                    "Traffic control",
                    "Not needed|Police escort|Lane closure|Full closure",
                    required=True,
                    alias="Traffic measures",
                ),
                boxes("On site", "Animals|Crane|Drone|Generator|Stunts"),
                box("Night shooting", 0.5),
                file("Site plan", papers("siteplan", ".pdf", ".png"), ".pdf", ".png", required=True),
                area(
                    "Scene description",
                    prose(
                        "A {cyclist|postman|child|dog} crosses the road {twice|slowly|in the rain}, {#} takes.",
                        "A {van|tram|piano} is pushed {uphill|past a market|into view}.",
                        "On {day} we only record {sound|rehearsals|empty streets}.",
                    ),
                    filled=0.85,
                ),
            )
        ),
    ),
)
VOLUNTEER = Form(
    name="gallery-volunteer",
    domain="creative",
    title="Gallery Volunteer Sign-up",
    button="Sign Up",
    asides=("The cloakroom has a new lock.",),
    pages=(
        Page(
            (
                text("Given name", first_name(), named_by="aria", alias="First name"),
                text("Family name", last_name(), named_by="aria", alias="Surname"),
                email("Email", address_of()),
                tel("Mobile", phone(), named_by="name"),
                date("Available from", day_between("2026-01-15", "2026-09-15")),
                boxes("Days", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday", named_by="heading"),
                select("Shift", "Morning|Midday|Late", blank=None, alias="Preferred shift"),
                radio("Tour language", "English|French|Portuguese|None"),
                number("Hours a week", whole(2, 20), "1", "20"),
                url("Portfolio link", website(), filled=0.6),
                area(
                    "Experience",
                    prose(
                        "I {guided|drove|archived|painted} for {#} months at a {museum|theatre|school}.",
                        "I like {children|quiet rooms|long stories|old maps}.",
                        "My {aunt|neighbour|teacher} suggested this on a {day}.",
                    ),
                ),
                box("May contact by phone", 0.5),
            )
        ),
    ),
)
FESTIVAL = Form(
    name="palco-do-festival",
    domain="creative",
    title="Inscrição de Palco no Festival",
    button="Enviar proposta",
    language="pt",
    asides=("No ano passado choveu nos dois dias.", "A praça ganhou novos bancos."),
    pages=(
        Page(
            (
                text(
                    "Nome do grupo",
                    phrase(
                        "Os|Trio|Banda|Coral",
                        "Ventos|Marés|Pedras|Violas|Tambores",
                        "do Norte|da Praça|de Abril|sem Pressa",
                    ),
                    required=True,
                    alias="Grupo",
                ),
                text("Contato", full_name(), required=True, alias="Pessoa de contato"),
                email("E-mail do contato", address_of(), required=True),
                tel("Celular", phone(), named_by="placeholder"),
                select("Gênero", "Choro|Forró|Frevo|Maracatu|Samba", required=True, alias="Estilo musical"),
                number("Integrantes", whole(2, 25), "1", "40", required=True),
                date("Dia preferido", day_between("2026-06-01", "2026-06-30"), required=True),
                time("Horário preferido", clock(14, 23, 30), required=True),
                number("Duração em minutos", whole(20, 90, 5), "20", "90", step="5", required=True),
                boxes("Necessidades", "Amplificador|Bateria|Camarim|Iluminação"),
                radio("Já tocou no festival", "Sim|Não", required=True),
                number(
                    "Ano da última vez",
                    whole(2015, 2025),
                    "2010",
                    "2025",
                    shown_if=shown("ja_tocou_no_festival", "sim"),
                    required=True,
                ),
                file("Fotos do grupo", papers("foto", ".jpg", ".png", count=3), ".jpg", ".png", multiple=True),
                area(
                    "Apresentação",
                    prose(
                        "Tocamos juntos há {#} anos em {festas|feiras|bares} da região.",
                        "O repertório tem {#} músicas {próprias|antigas|de roda}.",
                        "Ensaiamos toda {day} na casa do {baixista|maestro|vizinho}.",
                    ),
                    maxlength=300,
                    required=True,
                ),
                consent("Aceito o regulamento do festival"),
            )
        ),
    ),
)
FORMS = (FILM, VOLUNTEER, FESTIVAL)
