"""Law: three forms, one of them in Portuguese."""

from plumbline.tasks.forms.suite.declaration import Form, InOrder, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    amount,
    city,
    code,
    company,
    day_between,
    days_after,
    full_name,
    papers,
    phrase,
    postal_address,
    prose,
    some_of,
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
    text,
    url,
)

TRADEMARK = Form(
    name="trademark-watch",
    domain="legal",
    title="Trademark Watch Order",
    button="Order Watch",
    rules=(InOrder("watch_from", "watch_until"),),
    asides=("The gazette appears on Wednesdays.",),
    pages=(
        Page(
            (
                text(
                    "Mark",
                    phrase("Nimbo|Quorra|Veltis|Ostara|Plimm|Zindra", "Pure|Max|One|Home|Lab|Tea"),
                    required=True,
                    maxlength=40,
                    alias="Word mark",
                ),
                text("Owner", company(), required=True),
                text("Representative", full_name(), required=True),
                email("Representative email", address_of(), required=True, named_by="wrap"),
                text(
                    "Registration number",
                    code("TM#######"),
                    required=True,
                    pattern="TM[0-9]{7}",
                    hint="TM and seven digits",
                ),
                multiselect("Territories", "Brazil|Canada|European Union|Japan|Kenya|United Kingdom", required=True),
                boxes("Goods classes", "3 Cosmetics|9 Software|25 Clothing|30 Food|41 Education", draw=some_of(1, 3)),
                select("Similarity", "Identical only|Close|Broad", blank=None, alias="Degree of similarity"),
                date("Watch from", day_between("2026-01-01", "2026-06-30"), required=True),
                date("Watch until", days_after("watch_from", 180, 1000), required=True),
                money("Budget", amount(100, 5000), filled=0.85),
                url("Owner website", website(), filled=0.8),
                box("Include domain names", 0.5),
            )
        ),
    ),
)
DILIGENCE = Form(
    name="due-diligence",
    domain="legal",
    title="Due Diligence Attestation",
    button="File Attestation",
    asides=("The archive smells of paint.", "Copies need no stamp any more."),
    pages=(
        Page(
            (
                hidden("form_version", "2026-1"),
                text("Target company", company(), required=True, alias="Company examined"),
                text("Registered seat", city(), required=True, alias="Seat"),
                text("Attesting officer", full_name(), required=True),
                text(
                    "Officer title",
                    phrase("Chief|Deputy|Acting|Regional", "counsel|auditor|secretary|compliance officer"),
                    required=True,
                ),
                date("Period end", day_between("2024-12-31", "2026-06-30"), required=True),
                number("Contracts reviewed", whole(3, 400), "0", required=True),
                money("Total liabilities", amount(1000, 900000), required=True),
                radio("Finding", "Clean|Minor issues|Major issues", required=True),
                area(
                    "Issues found",
                    prose(
                        "{#} leases lack a {signature|date|witness}.",
                        "A {supplier|tenant|former director} disputes {#} invoices.",
                        "Permits for {storage|noise|water} end within {#} weeks.",
                    ),
                    shown_if=shown("finding", "minor_issues", "major_issues"),
                    required=True,
                ),
                boxes("Areas covered", "Employment|Environment|Intellectual property|Real estate|Tax", required=True),
                file("Report file", papers("report", ".pdf", ".docx"), ".pdf", ".docx", required=True),
                consent("The statements are complete"),
            )
        ),
    ),
)
PRIVACY = Form(
    name="pedido-do-titular",
    domain="legal",
    title="Pedido do Titular de Dados",
    button="Enviar pedido",
    language="pt",
    asides=("O encarregado de dados está de férias até segunda.", "O formulário em papel foi extinto."),
    pages=(
        Page(
            (
                text("Titular", full_name(), required=True, alias="Nome do titular"),
                text("Documento", code("##.###.###-#"), required=True, named_by="aria", alias="RG"),
                email("E-mail para resposta", address_of(), required=True),
                text("Endereço postal", postal_address(), maxlength=90),
                radio(
                    "Relação com a empresa", "Cliente|Ex-funcionário|Candidato|Outra", required=True, alias="Vínculo"
                ),
                multiselect(
                    "Direitos",
                    "Acesso|Correção|Eliminação|Oposição|Portabilidade",
                    required=True,
                    alias="Direitos exercidos",
                ),
                date("Dados desde", day_between("2015-01-01", "2025-06-30"), filled=0.85),
                select("Formato da resposta", "Carta|E-mail|Portal", required=True),
                boxes("Sistemas", "Aplicativo|Loja física|Loja virtual|Telefone"),
                box("Representado por advogado", 0.5, alias="Tem advogado"),
                text("Número da OAB", code("@@######"), shown_if=shown("representado_por_advogado"), required=True),
                file("Cópia do documento", papers("documento", ".pdf", ".png"), ".pdf", ".png", required=True),
                area(
                    "Descrição do pedido",
                    prose(
                        "Recebi {#} mensagens {sem pedir|depois de cancelar|de madrugada}.",
                        "Meu {nome|endereço|telefone} está {errado|repetido|desatualizado} no cadastro.",
                        "Peço resposta até {day}.",
                    ),
                    required=True,
                ),
            )
        ),
    ),
)
FORMS = (TRADEMARK, DILIGENCE, PRIVACY)
