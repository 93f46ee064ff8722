"""Building and making: two forms, one of them a wizard, one in Portuguese."""

from plumbline.tasks.forms.suite.declaration import Form, Multiplies, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    amount,
    clock,
    code,
    company,
    day_between,
    full_name,
    papers,
    phrase,
    product,
    prose,
    some_of,
    street,
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
    money,
    multiselect,
    number,
    radio,
    select,
    shown,
    text,
    time,
)

SAFETY = Form(
    name="site-safety",
    domain="industry",
    title="Site Safety Inspection",
    button="Submit Inspection",
    asides=("The crane licence hangs in the hut.", "The fence was painted on a Sunday."),
    pages=(
        Page(
            (
                text(
                    "Site",
                    phrase("Tower|Bridge|Tunnel|Depot", "north|south|riverside|hill", "lot A|lot B|lot C"),
                    required=True,
                ),
                text("Site address", street(), maxlength=60, alias="Where it is"),
                text("Inspector", full_name(), required=True),
                date("Inspection date", day_between("2026-01-05", "2026-12-18"), required=True),
                time("Arrival time", clock(6, 16), required=True),
                select("Weather", "Dry|Rain|Snow|Storm|Fog", required=True),
                number("Workers on site", whole(2, 150), "0", "500", required=True, alias="People on site"),
            ),
            "Visit",
        ),
        Page(
            (
                boxes("Hazards", "Edges|Electricity|Noise|Dust|Traffic|Heights", draw=some_of(1, 4)),
                radio("Helmets", "All|Most|Few|None", required=True, alias="Helmets worn"),
                radio("Scaffolding", "Safe|Needs work|Closed", required=True, named_by="heading"),
                box("Work was stopped", 0.5),
                text(
                    "Stopped at",
                    phrase("level|bay|gate", "1|2|3|4|5|6|7|8|9", "east|west"),
                    shown_if=shown("work_was_stopped"),
                    required=True,
                ),
                area(
                    "Findings",
                    prose(
                        "Ladder {#} has {no feet|a cracked rung|no tag}.",
                        "The {mixer|hoist|saw} runs without a {guard|switch|sign}.",
                        "{#} cables lie across the {stairs|path|gate}, cleared by {day}.",
                    ),
                    required=True,
                ),
                file("Photos", papers("site", ".jpg", ".png", count=3), ".jpg", ".png", multiple=True),
                consent("I was on site myself"),
            ),
            "Findings",
        ),
    ),
)
PARTS = Form(
    name="requisicao-de-pecas",
    domain="industry",
    title="Requisição de Peças de Reposição",
    button="Enviar requisição",
    language="pt",
    rules=(Multiplies(("quantidade", "preco_unitario"), "valor_total"),),
    asides=("O almoxarifado fecha às onze para contagem.", "A empilhadeira voltou da revisão."),
    pages=(
        Page(
            (
                text("Solicitante", full_name(), required=True, alias="Quem pede"),
                email("E-mail do solicitante", address_of(), named_by="placeholder"),
                text(
                    "Código da peça",
                    code("PC-####-@"),
                    required=True,
                    pattern="PC-[0-9]{4}-[A-Z]",
                    hint="PC-, quatro dígitos, traço, letra",
                ),
                text(
                    "Descrição da peça",
                    phrase(
                        "Rolamento|Correia|Válvula|Sensor|Bucha",
                        "lateral|dupla|curta|blindada",
                        "de aço|de borracha|de bronze",
                    ),
                    required=True,
                    maxlength=60,
                ),
                select("Máquina", "Prensa 1|Prensa 2|Torno|Fresa|Esteira", required=True, alias="Equipamento"),
                number("Quantidade", whole(1, 80), "1", "500", required=True),
                money("Preço unitário", amount(2, 900), required=True),
                money("Valor total", product("quantidade", "preco_unitario"), required=True),
                radio("Urgência", "Normal|Alta|Parada de linha", required=True, alias="Prioridade"),
                date("Necessário até", day_between("2026-01-15", "2026-12-15"), required=True, alias="Prazo"),
                text("Fornecedor sugerido", company(), filled=0.8),
                multiselect("Turnos afetados", "Manhã|Tarde|Noite|Fim de semana"),
                box("Guardar a peça usada", 0.5, named_by="wrap"),
                area(
                    "Justificativa",
                    prose(
                        "A peça {vibra|vaza|esquenta} depois de {#} horas.",
                        "O técnico viu {folga|trinca|ferrugem} na {day}.",
                        "Restam {#} unidades no {estoque|armário|setor}.",
                    ),
                    required=True,
                    maxlength=300,
                ),
            )
        ),
    ),
)
FORMS = (SAFETY, PARTS)
