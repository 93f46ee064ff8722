"""Money: three forms, one of them a wizard, one in Portuguese."""

from plumbline.tasks.forms.suite.declaration import Adds, Form, Page
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
    phone,
    postal_address,
    prose,
    total,
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
    number,
    radio,
    select,
    shown,
    tel,
    text,
)

WIRE = Form(
    name="wire-instruction",
    domain="finance",
    title="Wire Transfer Instruction",
    button="Send Instruction",
    rules=(Adds(("amount", "fee"), "total_debit"),),
    asides=("The branch moves in autumn.", "Cheques are no longer printed."),
    pages=(
        Page(
            (
                hidden("channel", "web"),
                text("Account holder", full_name(), required=True),
                text(
                    "From account",
                    code("##-######"),
                    required=True,
                    pattern="[0-9]{2}-[0-9]{6}",
                    hint="two digits, a dash, six digits",
                    alias="Debit account",
                ),
                text("Beneficiary", company(), required=True, alias="Payee"),
                text("Beneficiary account", code("@@##########"), required=True, maxlength=12),
                text("Beneficiary address", postal_address(), maxlength=100),
                select("Currency", "eur=EUR Euro|gbp=GBP Pound sterling|usd=USD US dollar|brl=BRL Real", required=True),
                money("Amount", amount(50, 90000), required=True),
                money("Fee", amount(1, 60), required=True),
                money("Total debit", total("amount", "fee"), required=True, alias="Total to be debited"),
                date("Value date", day_between("2026-01-05", "2026-12-20"), required=True),
                radio("Charges", "our=Paid by us|sha=Shared|ben=Paid by the beneficiary", required=True),
                text("Reference", code("INV-#####"), filled=0.85),
                box("Urgent", 0.5, alias="Same-day transfer"),
            )
        ),
    ),
)
MORTGAGE = Form(
    name="mortgage-precheck",
    domain="finance",
    title="Mortgage Pre-check",
    button="Request Pre-check",
    rules=(Adds(("own_funds", "loan_wanted"), "purchase_price"),),
    asides=("Rates are printed every Monday.", "The adviser speaks French."),
    pages=(
        Page(
            (
                text("Applicant", full_name(), required=True),
                date("Applicant birth date", day_between("1956-01-01", "2003-12-31"), required=True, alias="Born"),
                email("Applicant email", address_of(), required=True),
                tel("Daytime phone", phone()),
                radio("Employment", "Employee|Self-employed|Civil servant|Retired", required=True),
                text("Employer", company(), shown_if=shown("employment", "employee", "civil_servant"), required=True),
                money("Monthly income", amount(1800, 9000), required=True, alias="Net income a month"),
            ),
            "Household",
        ),
        Page(
            (
                select("Property type", "Flat|Terraced house|Detached house|Building plot", required=True),
                text("Town", city(), required=True),
                number("Year built", whole(1890, 2025), "1800", "2026", filled=0.9),
                money("Own funds", amount(10000, 120000), required=True),
                money("Loan wanted", amount(60000, 500000), required=True, alias="Loan amount"),
                money("Purchase price", total("own_funds", "loan_wanted"), required=True),
                select("Term in years", "10|15|20|25|30", required=True),
                file("Salary slips", papers("payslip", ".pdf", count=3), ".pdf", multiple=True, required=True),
                consent("I agree to a credit check"),
            ),
            "Property",
        ),
    ),
)
REFUND = Form(
    name="reembolso-de-despesas",
    domain="finance",
    title="Pedido de Reembolso de Despesas",
    button="Enviar pedido",
    language="pt",
    rules=(Adds(("hospedagem", "transporte", "refeicoes"), "total_pedido"),),
    asides=("O sistema antigo sai do ar em julho.", "Recibos em papel térmico desbotam."),
    pages=(
        Page(
            (
                text("Colaborador", full_name(), required=True, alias="Nome do colaborador"),
                email("E-mail corporativo", address_of(), required=True),
                text(
                    "Centro de custo", code("CC####"), required=True, pattern="CC[0-9]{4}", hint="CC e quatro dígitos"
                ),
                select("Motivo da viagem", "Auditoria|Cliente|Congresso|Treinamento", required=True),
                text("Cidade de destino", city(), required=True, alias="Destino"),
                date("Data de ida", day_between("2026-01-10", "2026-10-31"), required=True),
                date("Data de volta", days_after("data_de_ida", 1, 9), required=True),
                money("Hospedagem", amount(80, 1500), required=True),
                money("Transporte", amount(30, 2200), required=True),
                money("Refeições", amount(20, 600), required=True),
                money("Total pedido", total("hospedagem", "transporte", "refeicoes"), required=True),
                radio("Forma de pagamento", "Conta corrente|Folha|Pix", required=True),
                text("Chave Pix", address_of(), shown_if=shown("forma_de_pagamento", "pix"), required=True),
                boxes("Comprovantes", "Bilhete|Nota do hotel|Recibo de táxi", required=True),
                file("Arquivo dos comprovantes", papers("recibos", ".pdf", ".jpg"), ".pdf", ".jpg", required=True),
                area(
                    "Observações",
                    prose(
                        "O voo de {day} atrasou {#} horas.",
                        "O {táxi|trem|ônibus} não aceitava {cartão|Pix}.",
                        "A reunião com {#} pessoas foi {adiada|dividida|transferida}.",
                    ),
                    filled=0.7,
                    maxlength=250,
                ),
            )
        ),
    ),
)
FORMS = (WIRE, MORTGAGE, REFUND)
