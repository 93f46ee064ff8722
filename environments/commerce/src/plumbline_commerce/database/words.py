"""Fills the slots of a phrase with words that agree with the order: product words, days, dates, money, names."""

import re
from datetime import date

from plumbline_commerce.database.categories import Noun
from plumbline_commerce.database.dice import Dice, Weighted, listed
from plumbline_commerce.database.facts import Facts
from plumbline_commerce.database.figures import NUMBERS, date_text, days_text, exact_days, money_text
from plumbline_commerce.database.people import MEN, WOMEN

PRODUCT = Noun("produto", feminine=False)
_PRODUCTS = Weighted([(PRODUCT, 80), (Noun("item", feminine=False), 7), (Noun("mercadoria", feminine=True), 13)])
_SHIPMENTS = Weighted(
    [(PRODUCT, 60), (Noun("pedido", feminine=False), 22), (Noun("encomenda", feminine=True), 10),
     (Noun("mercadoria", feminine=True), 8)]
)  # fmt: skip
SPECIFIC_SHARE = 0.42
"""How often a clause names the product instead of saying "o produto"."""

_FAMILY = (
    ("minha mãe", 5), ("meu filho", 4), ("minha filha", 4), ("meu pai", 3), ("minha irmã", 2), ("meu irmão", 2),
    ("minha sogra", 2), ("minha avó", 2), ("meu sobrinho", 2), ("minha sobrinha", 2), ("meu neto", 1),
    ("minha neta", 1), ("minha amiga", 2), ("minha tia", 1), ("meu afilhado", 1),
)  # fmt: skip
_RELATIVES = {
    "f": Weighted([*_FAMILY, ("meu marido", 5), ("meu namorado", 1.5)]),
    "m": Weighted([*_FAMILY, ("minha esposa", 5), ("minha namorada", 1.5)]),
}
_WORK = {
    "f": ("professora", "aposentada", "motorista", "vendedora", "estudante", "enfermeira", "costureira"),
    "m": ("professor", "aposentado", "motorista", "vendedor", "estudante", "eletricista", "porteiro"),
}
_SHOPS = Weighted([("a loja", 4), ("o vendedor", 4), ("a empresa", 2), ("o lojista", 1)])
_GOOD = {
    "f": ("ótima", "excelente", "maravilhosa", "perfeita", "sensacional"),
    "m": ("ótimo", "excelente", "maravilhoso", "perfeito", "sensacional"),
}
_FINE = {"f": ("boa", "muito boa"), "m": ("bom", "muito bom")}
_LOOKS = ("linen", "wear", "shoe", "bag", "furn", "home", "gear")

_ALTERNATIVES = re.compile(r"<([^<>]*)>")
_SLOT = re.compile(r"\{(\w+)\}")
_NAMES_PRODUCT = re.compile(r"\{(?:o|um|do|no|esse|meu)_[px]\}|\{[px]\}")
_NEEDS_PRODUCT = re.compile(r"\{um_p\}|\{\w*_?x\}|\{p\}|\{no_p\}")
_VARIANTS = {
    "cor": listed("preta branca azul vermelha rosa cinza verde amarela marrom bege roxa", " "),
    "tam": ("PP", "P", "M", "G", "GG"),
    "num": tuple(str(size) for size in range(34, 44)),
    "vol": ("1", "2", "3", "4"),
}
"""What was ordered, colour, size, shoe size or volume; {outra_cor} and {outro_tam} are what came instead."""


class Words:
    """The words of one review.

    Args:
        dice: where choices are drawn from.
        facts: the order's facts.
        strong: whether adjectives are strong ("excelente") or mild ("bom").
    """

    def __init__(self, dice: Dice, facts: Facts, *, strong: bool) -> None:
        self._dice = dice
        self._facts = facts
        self._strong = strong
        self._specific = facts.noun
        self._relative = dice.weighted(_RELATIVES["f" if facts.person.feminine else "m"])
        self.used: set[str] = set()
        """Slots filled so far."""
        self._noun = PRODUCT
        self._named = False
        self._day_only = True
        self._pairs: dict[str, tuple[str, str]] = {}

    def fill(self, template: str, *, shipment: bool = False, specific: bool = False) -> str:
        """The clause that a template makes.

        Args:
            template: a phrase, see `banks`; a leading `+` is dropped, the brackets of the span are kept.
            shipment: whether the thing may be called a parcel or an order.
            specific: whether the product must be named where it has a name.
        """
        text = template.removeprefix("+")
        while "<" in text:
            text = _ALTERNATIVES.sub(self._alternative, text)
        if _NAMES_PRODUCT.search(text):
            shipment = shipment and not _NEEDS_PRODUCT.search(text)
            self._noun = self._specific if specific and self._specific else self._draw_noun(shipment)
            self._named = self._named or self._noun is self._specific
        self._day_only = text.count("{d_") == 1 and not self.used & {"d_prev", "d_compra", "d_cheg"}
        text = _SLOT.sub(self._slot, text)
        text = text.replace("@", "a" if self._noun.feminine else "o")
        text = text.replace("§", "a" if self._facts.person.feminine else "o")
        return _tidy(text)

    def memory(self) -> tuple[Noun, bool, frozenset[str]]:
        """What has been said so far; `recall` takes it back to it, so that a phrase can be tried and dropped."""
        return self._noun, self._named, frozenset(self.used)

    def recall(self, memory: tuple[Noun, bool, frozenset[str]]) -> None:
        """Forget what was said since."""
        self._noun, self._named = memory[:2]
        self.used = set(memory[2])

    def _alternative(self, match: re.Match[str]) -> str:
        return self._dice.pick(str(match.group(1)).split("|"))

    def _draw_noun(self, shipment: bool) -> Noun:
        if self._specific and self._dice.chance(SPECIFIC_SHARE / 4 if self._named else SPECIFIC_SHARE):
            return self._specific
        return self._dice.weighted(_SHIPMENTS if shipment else _PRODUCTS)

    def _slot(self, match: re.Match[str]) -> str:
        name = match.group(1)
        self.used.add(name)
        filler = getattr(self, f"slot_{name}", None)
        if filler is not None:
            return str(filler())
        variant = name.removeprefix("outra_").removeprefix("outro_")
        if variant in _VARIANTS:
            return self._variant(variant, came=variant != name)
        article, _, kind = name.partition("_")
        assert kind in ("p", "x") or article in ("p", "x"), f"unknown slot {name}"
        if not kind:
            return self._noun.word
        feminine = self._noun.feminine
        pair = {"o": "o a", "um": "um uma", "do": "do da", "no": "no na", "esse": "esse essa", "meu": "meu minha"}
        return f"{pair[article].split()[feminine]} {self._noun.word}"

    # The product and what is said of it.

    def slot_ele(self) -> str:
        """He or she, for the product."""
        return "ela" if self._noun.feminine else "ele"

    def slot_um(self) -> str:
        """The indefinite article of the product."""
        return "uma" if self._noun.feminine else "um"

    def slot_bom(self) -> str:
        """Good, for the product."""
        return "boa" if self._noun.feminine else "bom"

    def slot_adj(self) -> str:
        """A praising adjective for the product, as strong as the tone."""
        gender = "f" if self._noun.feminine else "m"
        looks = self._facts.kind in _LOOKS
        if not self._strong and self._noun is self._specific and looks and self._dice.chance(0.2):
            return "bonita" if self._noun.feminine else "bonito"
        return self._praise(gender)

    def slot_adjf(self) -> str:
        """The same for a feminine word (entrega, qualidade)."""
        return self._praise("f")

    def slot_adjm(self) -> str:
        """The same for a masculine word (preço, atendimento)."""
        return self._praise("m")

    def _praise(self, gender: str) -> str:
        return self._dice.pick(_GOOD[gender] if self._strong and self._dice.chance(0.85) else _FINE[gender])

    def slot_uso(self) -> str:
        """A time of use that fits in between delivery and review."""
        owned = self._facts.owned
        if owned >= 8:
            return self._dice.pick(("uma semana", "três dias", "cinco dias", "poucos dias"))
        if owned >= 3:
            return self._dice.pick(("dois dias", "poucos dias", "um dia"))
        return self._dice.pick(("um dia", "poucas horas", "duas horas"))

    # Days and dates.

    def slot_atraso(self) -> str:
        """How late it is."""
        return days_text(self._dice, self._facts.overdue)

    def slot_espera(self) -> str:
        """How long it took since the purchase."""
        return days_text(self._dice, self._facts.waited)

    def slot_dias(self) -> str:
        """The same, exactly."""
        return exact_days(self._dice, self._facts.waited)

    def slot_promessa(self) -> str:
        """How long the shop had promised that it would take."""
        return f"{self._facts.promised} dias"

    def slot_adiantado(self) -> str:
        """How much before the estimated date it came."""
        return days_text(self._dice, self._facts.early)

    def slot_d_prev(self) -> str:
        """The estimated date."""
        return self._date(self._facts.estimated)

    def slot_d_compra(self) -> str:
        """The date of the purchase."""
        return self._date(self._facts.purchased)

    def slot_d_cheg(self) -> str:
        """The date of the delivery."""
        assert self._facts.delivered is not None, "a phrase names the day of a delivery that was not"
        return self._date(self._facts.delivered)

    def _date(self, day: date) -> str:
        """Only a first date may go without its month."""
        return date_text(self._dice, day, day_only=self._day_only)

    # Money.

    def slot_preco(self) -> str:
        """What the items cost."""
        return money_text(self._dice, self._facts.value)

    def slot_frete(self) -> str:
        """What the freight cost."""
        return money_text(self._dice, self._facts.freight)

    def slot_pagamento(self) -> str:
        """How it was paid."""
        return self._facts.payment

    # How many came.

    def _came(self) -> tuple[int, int]:
        """(How many items came, how many are missing), the same all through a review."""
        if "came" not in self._pairs:
            came = self._dice.between(1, self._facts.items - 1) if self._facts.items > 2 else 1
            self._pairs["came"] = (str(came), str(self._facts.items - came))
        came_text, missing = self._pairs["came"]
        return int(came_text), int(missing)

    def slot_n(self) -> str:
        """How many items were ordered."""
        return str(self._facts.items)

    def slot_m(self) -> str:
        """How many items came."""
        return self._count(self._came()[0])

    def slot_veio_m(self) -> str:
        """The same as a clause."""
        count = self._came()[0]
        return f"{self._dice.pick(('veio', 'chegou') if count == 1 else ('vieram', 'chegaram'))} {self._count(count)}"

    def slot_falta(self) -> str:
        """How many items are missing."""
        count = self._came()[1]
        return f"{self._count(count)} {'item' if count == 1 else 'itens'}"

    def slot_falta_v(self) -> str:
        """The same as a clause."""
        one = self._came()[1] == 1
        verb = self._dice.pick(("faltou", "não veio", "está faltando") if one else ("faltaram", "não vieram", "faltam"))
        return f"{verb} {self.slot_falta()}"

    def _count(self, number: int) -> str:
        return NUMBERS[number] if number <= 10 and self._dice.chance(0.5) else str(number)

    # People and places.

    def slot_a_loja(self) -> str:
        """The shop, as a subject."""
        return self._dice.weighted(_SHOPS)

    def slot_da_loja(self) -> str:
        """Of the shop."""
        return f"d{self._dice.weighted(_SHOPS)}"

    def slot_com_loja(self) -> str:
        """With the shop."""
        return f"com {self._dice.weighted(_SHOPS)}"

    def slot_pela_loja(self) -> str:
        """By the shop."""
        return f"pel{self._dice.weighted(_SHOPS)}"

    def slot_parente(self) -> str:
        """A relative or friend, the same all through a review."""
        return self._relative

    def slot_meu_parente(self) -> str:
        """The same."""
        return self._relative

    def slot_do_parente(self) -> str:
        """Of the relative."""
        return f"d{'a' if self._relative.startswith('minha') else 'o'} {self._relative}"

    def slot_com_parente(self) -> str:
        """With the relative."""
        return f"com {'a' if self._relative.startswith('minha') else 'o'} {self._relative}"

    def slot_nome_f(self) -> str:
        """A woman's name."""
        return self._dice.pick(WOMEN)

    def slot_nome_m(self) -> str:
        """A man's name."""
        return self._dice.pick(MEN)

    def slot_assina(self) -> str:
        """The customer's first name."""
        return self._facts.person.first_name

    def slot_profissao(self) -> str:
        """What the customer does for a living."""
        return self._dice.pick(_WORK["f" if self._facts.person.feminine else "m"])

    def slot_em_cidade(self) -> str:
        """In the customer's city."""
        name = self._facts.person.city.name
        return f"no {name}" if name in ("Rio de Janeiro", "Recife") else f"em {name}"

    def slot_cidade_para(self) -> str:
        """The customer's city after "para"."""
        name = self._facts.person.city.name
        return f"o {name}" if name in ("Rio de Janeiro", "Recife") else name

    def _variant(self, kind: str, *, came: bool) -> str:
        """A colour or a size: the one that was ordered, or another one that came instead."""
        if kind not in self._pairs:
            ordered, other = self._dice.shuffled(_VARIANTS[kind])[:2]
            self._pairs[kind] = (ordered, other)
        return self._pairs[kind][came]

    def slot_n_vezes(self) -> str:
        """How often the customer bought before, in words."""
        return self._dice.pick(("duas vezes", "três vezes", "algumas vezes", "várias vezes"))


def _tidy(text: str) -> str:
    """Single spaces, none before punctuation."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r" ([,.?!\]])", r"\1", text).replace("[ ", "[")
