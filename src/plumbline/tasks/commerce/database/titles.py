"""Review titles: short, and never saying anything that the message does not say."""

from plumbline.tasks.commerce.database.dice import Dice
from plumbline.tasks.commerce.database.gold import Gold

WITH_MESSAGE, WITHOUT_MESSAGE = 0.24, 0.027
"""Share of reviews with a title, with and without a message."""

_GOOD = ("Muito bom", "Ótimo", "Excelente", "Bom", "Gostei", "Satisfeito", "Adorei", "Nota 10", "10",
         "Perfeito", "Tudo certo", "muito bom", "otimo", "ótima compra", "aprovado", "Top", "bom", "Show")  # fmt: skip
_MIDDLE = ("Regular", "Mais ou menos", "Razoável", "regular", "ok", "Médio", "Mediano", "Nada de mais")
_BAD = ("Péssimo", "Ruim", "Não gostei", "Decepcionado", "Insatisfeito", "péssimo", "Horrível", "Decepção",
        "insatisfação", "Muito ruim", "ruim", "Reclamação")  # fmt: skip
_TOPIC = {
    "entrega_atrasada": ("Entrega atrasada", "Atraso", "Atraso na entrega", "entrega fora do prazo", "Demora"),
    "nao_entregue": ("Não recebi", "Produto não entregue", "não recebi o produto", "Cadê?", "Não entregue"),
    "produto_defeituoso": ("Produto com defeito", "Defeito", "Qualidade ruim", "veio com defeito", "Má qualidade"),
    "produto_errado": ("Produto errado", "Veio errado", "Diferente do anúncio", "veio outro produto"),
    "atendimento": ("Atendimento ruim", "Sem resposta", "atendimento", "Mau atendimento"),
    "preco_frete": ("Caro", "Frete caro", "preço alto", "Muito caro"),
}
_RECOMMENDS = ("Recomendo", "Super recomendo", "recomendo")
_REFUSES = ("Não recomendo", "não recomendo")


def draw_title(dice: Dice, gold: Gold | None, score: int) -> str | None:
    """A title, or None.

    Args:
        dice: where it is drawn from.
        gold: the labels of the message; None without a message.
        score: 1 to 5 stars.
    """
    if gold is None:
        if not dice.chance(WITHOUT_MESSAGE):
            return None
        return dice.pick(_GOOD if score >= 4 else _MIDDLE if score == 3 else _BAD)
    if not dice.chance(WITH_MESSAGE):
        return None
    if gold.would_recommend is not None and gold.sentiment != "neutro" and dice.chance(0.5):
        return dice.pick(_RECOMMENDS if gold.would_recommend else _REFUSES)
    if gold.sentiment == "negativo" and gold.complaint_category != "nenhum" and dice.chance(0.55):
        return dice.pick(_TOPIC[gold.complaint_category])
    return dice.pick({"positivo": _GOOD, "neutro": _MIDDLE, "negativo": _BAD}[gold.sentiment])
