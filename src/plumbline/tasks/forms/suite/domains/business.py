"""Companies: four forms, one of them a Portuguese wizard."""

from plumbline.tasks.forms.suite.declaration import Form, InOrder, Multiplies, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    amount,
    city,
    clock,
    code,
    company,
    day_between,
    days_after,
    full_name,
    minutes_after,
    more_than,
    papers,
    phone,
    phrase,
    postal_address,
    product,
    prose,
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
    hidden,
    money,
    multiselect,
    number,
    radio,
    select,
    shown,
    tel,
    text,
    time,
    url,
)

ROOM = Form(
    name="meeting-room",
    domain="business",
    title="Meeting Room Reservation",
    button="Reserve Room",
    rules=(InOrder("from_time", "until_time"),),
    asides=("The lift in the east wing is slow.",),
    pages=(
        Page(
            (
                hidden("building", "hq-2"),
                text("Booked by", full_name(), required=True, alias="Host"),
                text(
                    "Meeting title",
                    phrase(
                        "Budget|Hiring|Launch|Safety|Pricing",
                        "review|workshop|briefing|retrospective",
                        "north|south|online|wholesale|export",
                    ),
                    required=True,
                    maxlength=60,
                ),
                select("Room", "Aster|Begonia|Clover|Dahlia|Edelweiss", required=True),
                date("Meeting date", day_between("2026-01-10", "2026-12-10"), required=True),
                time("From time", clock(7, 17), required=True),
                time("Until time", minutes_after("from_time", 30, 60, 90, 150), required=True),
                number("Attendees", whole(2, 30), "2", "30", required=True, alias="Number of people"),
                boxes("Equipment", "Projector|Whiteboard|Conference phone|Flip chart"),
                box("Catering", 0.5),
                text(
                    "Catering wishes",
                    phrase(
                        "Tea and|Coffee and|Juice and",
                        "fruit|sandwiches|biscuits|soup",
                        "for all|for half the group|at the break",
                    ),
                    shown_if=shown("catering"),
                    required=True,
                ),
                text("Cost centre", code("CC-####"), required=True, pattern="CC-[0-9]{4}", hint="CC- and four digits"),
            )
        ),
    ),
)
BOOTH = Form(
    name="trade-show-booth",
    domain="business",
    title="Trade Show Booth Order",
    button="Order Booth",
    rules=(Multiplies(("area_in_square_metres", "price_per_square_metre"), "booth_total"),),
    asides=("Hall 4 was flooded two winters ago.", "Parking tickets are sold at the gate."),
    pages=(
        Page(
            (
                text("Company", company(), required=True, alias="Exhibitor"),
                text("Contact person", full_name(), required=True),
                email("Contact email", address_of(), required=True, named_by="placeholder"),
                tel("Contact phone", phone(), named_by="placeholder"),
                url("Website", website()),
                select("Hall", "Hall 1|Hall 2|Hall 3|Hall 4", required=True),
                radio("Booth type", "Row|Corner|Island", required=True),
                number(
                    "Area in square metres", whole(9, 60, 3), "9", "60", step="3", required=True, alias="Floor area"
                ),
                money("Price per square metre", amount(80, 240), required=True),
                money("Booth total", product("area_in_square_metres", "price_per_square_metre"), required=True),
                multiselect("Extras", "Carpet|Lighting|Water|Storage|Extra power|Cleaning"),
                text(
                    "Fascia text",
                    phrase("Tools|Lamps|Seeds|Pumps|Paper", "that last|made nearby|for makers|since 1911"),
                    maxlength=30,
                ),
                consent("I accept the exhibitor terms"),
            )
        ),
    ),
)
REQUISITION = Form(
    name="job-requisition",
    domain="business",
    title="Job Requisition",
    button="Submit Requisition",
    rules=(InOrder("lowest_salary", "highest_salary"),),
    asides=("The last opening drew forty letters.", "The canteen is hiring, too."),
    pages=(
        Page(
            (
                text(
                    "Position",
                    phrase("Senior|Junior|Lead|Night", "welder|accountant|planner|nurse|translator|driver"),
                    required=True,
                    alias="Job title",
                ),
                select("Department", "Finance|Logistics|Production|Research|Sales", required=True),
                text("Hiring manager", full_name(), required=True),
                email("Manager email", address_of()),
                number("Openings", whole(1, 9), "1", "9", required=True, default="1", alias="How many positions"),
                radio("Contract", "Permanent|Fixed term|Apprenticeship", required=True),
                number("Months", whole(6, 36, 3), "1", "48", shown_if=shown("contract", "fixed_term"), required=True),
                number("Lowest salary", whole(24000, 60000, 500), "0", required=True),
                number("Highest salary", more_than("lowest_salary", 1000, 20000), "0", required=True),
                date("Start by", day_between("2026-04-01", "2026-12-31"), required=True, alias="Latest start"),
                text("Work site", city(), named_by="heading"),
                area(
                    "Duties",
                    prose(
                        "Keeps the {stock|books|schedule|fleet} in order for {#} colleagues.",
                        "Reports every {day} to the {site|shift|group} lead.",
                        "Trains {#} newcomers a year in {safety|planning|quality}.",
                    ),
                    required=True,
                ),
                box("Replaces someone who left", 0.5),
            )
        ),
    ),
)
SUPPLIER = Form(
    name="cadastro-de-fornecedor",
    domain="business",
    title="Cadastro de Fornecedor",
    button="Enviar cadastro",
    language="pt",
    rules=(InOrder("inicio_do_contrato", "fim_do_contrato"),),
    asides=("O fornecedor anterior fechou as portas em março.", "A equipe de compras mudou de andar."),
    pages=(
        Page(
            (
                text("Razão social", company(), required=True, alias="Nome da empresa"),
                text(
                    "CNPJ",
                    code("##.###.###/0001-##"),
                    required=True,
                    pattern="[0-9]{2}[.][0-9]{3}[.][0-9]{3}/[0-9]{4}-[0-9]{2}",
                    hint="00.000.000/0000-00",
                ),
                text("Responsável", full_name(), required=True),
                email("E-mail comercial", address_of(), required=True),
                tel("Telefone comercial", phone()),
                text("Endereço", postal_address(), maxlength=90, alias="Local da sede"),
                url("Site", website(), filled=0.7),
            ),
            "Empresa",
        ),
        Page(
            (
                select("Ramo", "Alimentos|Embalagens|Limpeza|Transporte|Tecnologia", required=True),
                radio("Porte", "MEI|Pequena|Média|Grande", required=True),
                multiselect("Regiões atendidas", "Centro-Oeste|Nordeste|Norte|Sudeste|Sul"),
                date("Início do contrato", day_between("2026-01-05", "2026-06-30"), required=True),
                date("Fim do contrato", days_after("inicio_do_contrato", 90, 700), required=True),
                money("Limite mensal", amount(500, 40000), required=True, alias="Teto por mês"),
                file("Contrato social", papers("contrato", ".pdf"), ".pdf", required=True),
                consent("Declaro que os dados são verdadeiros", named_by="wrap"),
            ),
            "Contrato",
        ),
    ),
)
FORMS = (ROOM, BOOTH, REQUISITION, SUPPLIER)
