"""From a row of `orders_enriched` to a chat in Portuguese and its gold answer."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from plumbline.records import Message
from plumbline_commerce.database.gold import MAX_SPAN
from plumbline_commerce.extraction.schema import CATEGORIES, ISSUES, KEYS

OPENING = """\
Você extrai dados de avaliações de uma loja on-line brasileira. O texto da avaliação decide tudo, menos os dias de \
atraso, que vêm dos fatos do pedido. Responda somente com um objeto JSON, sem nenhum texto em volta, com exatamente \
estas chaves:
"""
EXPLAINED = {
    "sentiment": """\
- sentiment: "positivo" (só elogio, ou elogio e crítica com recomendação), "negativo" (só crítica, ironia, ou elogio \
e crítica com recusa) ou "neutro" (elogio e crítica, ou sem opinião).""",
    "sentiment_score": """\
- sentiment_score: nota de 0.0 a 5.0 com uma casa decimal: 0.5 péssimo (ironia ou palavra forte, como horrível), 1.5 \
ruim (também elogio e crítica com recusa), 2.5 misto ou sem opinião, 3.5 bom com ressalva (elogio e crítica com \
recomendação), 4.0 bom, 4.8 ótimo (palavra forte, como excelente); se há só elogio ou só crítica, 0.2 mais longe do \
meio com muito, super, demais, "!!" ou tudo em maiúsculas.""",
    "complaint_category": f"""\
- complaint_category: o assunto da primeira reclamação: {", ".join(CATEGORIES)}.""",
    ISSUES[0]: f"""\
- {", ".join(ISSUES)}: true se o texto reclama da entrega, do produto ou do atendimento.""",
    "would_recommend": """\
- would_recommend: true ou false só se o cliente diz que recomenda ou que compraria de novo, ou que não; senão null.""",
    "delay_days": """\
- delay_days: dias de atraso da entrega, 0 se chegou no prazo, null se não foi entregue.""",
    "churn_risk": """\
- churn_risk: risco de o cliente não voltar, de 0.0 a 1.0 com uma casa decimal: 1 menos a nota dividida por 5, mais \
0.1 por assunto reclamado, mais 0.2 se não recomenda, menos 0.2 se recomenda.""",
    "main_complaint": f"""\
- main_complaint: o trecho literal da primeira reclamação, até {MAX_SPAN} caracteres; null se não há reclamação.""",
}
SHORT = "Extraia os dados da avaliação em JSON."


def messages(
    row: Mapping[str, Any], instructions: Literal["full", "short"], keys: Sequence[str] = KEYS
) -> list[Message]:
    """The prompt: what to do, the order's facts, the review as it was written."""
    explained = OPENING + "\n".join(EXPLAINED[key] for key in keys if key in EXPLAINED)
    return [
        {"role": "system", "content": explained if instructions == "full" else SHORT},
        {"role": "user", "content": f"{_facts(row, instructions)}\nAvaliação: {row['review_text']}"},
    ]


def _facts(row: Mapping[str, Any], instructions: Literal["full", "short"]) -> str:
    if row["delay_days"] is None:
        delivery = "não entregue"
    elif row["delay_days"] == 0:
        delivery = f"entregue em {row['delivery_days']} dias, no prazo"
    else:
        delivery = f"entregue em {row['delivery_days']} dias, com {row['delay_days']} de atraso"
    if instructions == "short":
        return f"Entrega: {delivery}"
    return f"Pedido: {_order(row)}, para {row['customer_city']} ({row['customer_state']})\nEntrega: {delivery}"


def _order(row: Mapping[str, Any]) -> str:
    """What was bought and for how much; an order that was cancelled early has neither."""
    category = (row["product_category"] or "sem categoria").replace("_", " ")
    if row["order_value"] is None:
        return "sem itens"
    return f"{category}, {_reais(row['order_value'])} mais {_reais(row['freight_value'] or 0.0)} de frete"


def _reais(value: float) -> str:
    """An amount as Brazilians write it: R$ 1.234,56."""
    return "R$ " + f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def reference(row: Mapping[str, Any], keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """The gold values of a row, typed (SQLite has no booleans)."""
    flags = {*ISSUES, "would_recommend"}
    return {key: bool(row[key]) if key in flags and row[key] is not None else row[key] for key in keys}


def gold(values: Mapping[str, Any]) -> str:
    """The oracle's answer: one line of JSON."""
    return json.dumps(values, ensure_ascii=False)
