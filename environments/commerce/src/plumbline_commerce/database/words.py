"""Fills the slots of a phrase with words that agree with the order: product words, days, dates,
money, names.

Days, dates and amounts of money as people write them; whatever is written is true. How people type:
styles, internet spelling, typos, lost accents, capitals; and how clauses are joined to a text:
connectives, sentence ends, line breaks.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from plumbline_commerce.database.catalogue import Noun, noun
from plumbline_commerce.database.dice import SHARES, Dice, Weighted, shares, shares_by, split_list
from plumbline_commerce.database.gold import INTENSIFIERS, STRONG_COMPLAINT, STRONG_PRAISE
from plumbline_commerce.database.orders import Facts
from plumbline_commerce.database.people import MEN, WOMEN, fold_accents

MONTHS = split_list(
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro", " "
)
NUMBERS = split_list("zero um dois três quatro cinco seis sete oito nove dez", " ")


def days_text(dice: Dice, days: int) -> str:
    """A number of days as people write it; always true ("mais de um mês" only of more than 30
    days)."""
    loose = dice.random()
    if days == 1:
        return exact_days(dice, days)
    if loose < 0.25:
        exact = {
            7: "uma semana",
            14: "duas semanas",
            15: "quinze dias",
            21: "três semanas",
            30: "um mês",
        }
        if days in exact:
            return exact[days]
        for low, high, words in (
            (8, 13, "mais de uma semana"), (16, 20, "mais de duas semanas"), (22, 26, ("mais de "
                "três "
                "semanas")),
            (27, 29, "quase um mês"), (31, 52, "mais de um mês"), (53, 59, "quase dois meses"),
            (61, 85, "mais de dois meses"), (91, 9999, "mais de três meses"),
        ):  # fmt: skip
            if low <= days <= high:
                return words
    return exact_days(dice, days)


def exact_days(dice: Dice, days: int) -> str:
    """A number of days, in figures or words."""
    if days == 1:
        return dice.pick(("1 dia", "um dia"))
    if 2 <= days <= 10 and dice.chance(0.15):
        return f"{NUMBERS[days]} dias"
    return f"{days} dias"


_DATE_FORMS = shares("dates")


def date_text(dice: Dice, day: date, *, day_only: bool) -> str:
    """A date as people write it, after "dia"; `day_only` allows to leave the month out."""
    form = "dia {d}" if day_only and dice.chance(0.3) else dice.weighted(_DATE_FORMS)
    return form.format(
        d=day.day,
        dd=f"{day.day:02d}",
        m=day.month,
        mm=f"{day.month:02d}",
        month=MONTHS[day.month - 1],
    )


def money_text(dice: Dice, value: float | None) -> str:
    """An amount as people write it: "R$ 89,90", "89 reais e 90 centavos" only as a round figure."""
    assert value is not None, "a phrase names the price of an order without items"
    exact = f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")
    whole = round(value)
    if value == whole and dice.chance(0.6):
        return dice.pick((f"{whole} reais", f"R$ {whole}", f"R${whole}"))
    if value % 1 >= 0.85 and value > 10 and dice.chance(0.4):
        return f"quase {whole} reais"
    return dice.pick((f"R$ {exact}", f"R${exact}", f"R$ {exact}", f"{exact} reais"))


PRODUCT = noun("o produto")
_PRODUCTS, _SHIPMENTS = (
    Weighted([(noun(word), share) for word, share in SHARES[name].items()])
    for name in ("products", "shipments")
)
SPECIFIC_SHARE = 0.42
"""How often a clause names the product instead of saying "o produto"."""

_RELATIVES = {
    sex: Weighted([*SHARES["family"].items(), *own.items()])
    for sex, own in SHARES["partners"].items()
}
_WORK = {
    "f": (
        "professora",
        "aposentada",
        "motorista",
        "vendedora",
        "estudante",
        "enfermeira",
        "costureira",
    ),
    "m": (
        "professor",
        "aposentado",
        "motorista",
        "vendedor",
        "estudante",
        "eletricista",
        "porteiro",
    ),
}
_SHOPS = shares("shops")
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
    "cor": split_list("preta branca azul vermelha rosa cinza verde amarela marrom bege roxa", " "),
    "tam": ("PP", "P", "M", "G", "GG"),
    "num": tuple(str(size) for size in range(34, 44)),
    "vol": ("1", "2", "3", "4"),
}
"""What was ordered, colour, size, shoe size or volume; {outra_cor} and {outro_tam} are what came
instead."""


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
        self._fillers = self._slots()

    def fill(self, template: str, *, shipment: bool = False, specific: bool = False) -> str:
        """The clause that a template makes.

        Args:
            template: a phrase, see `plans`; a leading `+` is dropped, the brackets of the span are
                kept.
            shipment: whether the thing may be called a parcel or an order.
            specific: whether the product must be named where it has a name.
        """
        text = template.removeprefix("+")
        while "<" in text:
            text = _ALTERNATIVES.sub(self._alternative, text)
        if _NAMES_PRODUCT.search(text):
            shipment = shipment and not _NEEDS_PRODUCT.search(text)
            self._noun = (
                self._specific if specific and self._specific else self._draw_noun(shipment)
            )
            self._named = self._named or self._noun is self._specific
        self._day_only = text.count("{d_") == 1 and not self.used & {"d_prev", "d_compra", "d_cheg"}
        text = _SLOT.sub(self._slot, text)
        text = text.replace("@", "a" if self._noun.feminine else "o")
        text = text.replace("§", "a" if self._facts.person.feminine else "o")
        return _tidy(text)

    def memory(self) -> tuple[Noun, bool, frozenset[str]]:
        """What has been said so far; `recall` takes it back to it, so that a phrase can be tried
        and dropped."""
        return self._noun, self._named, frozenset(self.used)

    def recall(self, memory: tuple[Noun, bool, frozenset[str]]) -> None:
        """Forget what was said since."""
        self._noun, self._named = memory[:2]
        self.used = set(memory[2])

    def _alternative(self, match: re.Match[str]) -> str:
        return self._dice.pick(str(match.group(1)).split("|"))

    def _draw_noun(self, shipment: bool) -> Noun:
        if self._specific and self._dice.chance(
            SPECIFIC_SHARE / 4 if self._named else SPECIFIC_SHARE
        ):
            return self._specific
        return self._dice.weighted(_SHIPMENTS if shipment else _PRODUCTS)

    def _slot(self, match: re.Match[str]) -> str:
        name = match.group(1)
        self.used.add(name)
        if name in self._fillers:
            return self._fillers[name]()
        variant = name.removeprefix("outra_").removeprefix("outro_")
        if variant in _VARIANTS:
            return self._variant(variant, came=variant != name)
        article, _, kind = name.partition("_")
        assert kind in ("p", "x") or article in ("p", "x"), f"unknown slot {name}"
        if not kind:
            return self._noun.word
        feminine = self._noun.feminine
        pair = {
            "o": "o a",
            "um": "um uma",
            "do": "do da",
            "no": "no na",
            "esse": "esse essa",
            "meu": "meu minha",
        }
        return f"{pair[article].split()[feminine]} {self._noun.word}"

    def _slots(self) -> dict[str, Callable[[], str]]:
        """What fills each slot."""
        dice, facts, relative = self._dice, self._facts, self._relative
        the_relative = f"{'a' if relative.startswith('minha') else 'o'} {relative}"
        city = facts.person.city.name
        with_article = city in ("Rio de Janeiro", "Recife")
        return {
            # The product and what is said of it.
            "ele": lambda: "ela" if self._noun.feminine else "ele",
            "um": lambda: "uma" if self._noun.feminine else "um",
            "bom": lambda: "boa" if self._noun.feminine else "bom",
            "adj": self._adjective,
            "adjf": lambda: self._praise("f"),  # of a feminine word (entrega, qualidade)
            "adjm": lambda: self._praise("m"),  # of a masculine word (preço, atendimento)
            "uso": self._time_of_use,
            # Days and dates.
            "atraso": lambda: days_text(dice, facts.overdue),
            "espera": lambda: days_text(dice, facts.waited),
            "dias": lambda: exact_days(dice, facts.waited),
            "promessa": lambda: f"{facts.promised} dias",
            "adiantado": lambda: days_text(dice, facts.early),
            "d_prev": lambda: self._date(facts.estimated),
            "d_compra": lambda: self._date(facts.purchased),
            "d_cheg": lambda: self._date(facts.delivered),
            # Money.
            "preco": lambda: money_text(dice, facts.value),
            "frete": lambda: money_text(dice, facts.freight),
            "pagamento": lambda: facts.payment,
            # How many items were ordered, came, and are missing.
            "n": lambda: str(facts.items),
            "m": lambda: self._count(self._came()[0]),
            "veio_m": self._those_came,
            "falta": self._missing,
            "falta_v": self._those_missing,
            # People and places.
            "a_loja": lambda: dice.weighted(_SHOPS),
            "da_loja": lambda: f"d{dice.weighted(_SHOPS)}",
            "com_loja": lambda: f"com {dice.weighted(_SHOPS)}",
            "pela_loja": lambda: f"pel{dice.weighted(_SHOPS)}",
            "parente": lambda: relative,
            "meu_parente": lambda: relative,
            "do_parente": lambda: f"d{the_relative}",
            "com_parente": lambda: f"com {the_relative}",
            "nome_f": lambda: dice.pick(WOMEN),
            "nome_m": lambda: dice.pick(MEN),
            "assina": lambda: facts.person.first_name,
            "profissao": lambda: dice.pick(_WORK["f" if facts.person.feminine else "m"]),
            "em_cidade": lambda: f"no {city}" if with_article else f"em {city}",
            "cidade_para": lambda: f"o {city}" if with_article else city,
            "n_vezes": lambda: dice.pick(
                ("duas vezes", "três vezes", "algumas vezes", "várias vezes")
            ),
        }

    def _adjective(self) -> str:
        """A praising adjective for the product, as strong as the tone."""
        looks = self._facts.kind in _LOOKS
        if not self._strong and self._noun is self._specific and looks and self._dice.chance(0.2):
            return "bonita" if self._noun.feminine else "bonito"
        return self._praise("f" if self._noun.feminine else "m")

    def _praise(self, gender: str) -> str:
        return self._dice.pick(
            _GOOD[gender] if self._strong and self._dice.chance(0.85) else _FINE[gender]
        )

    def _time_of_use(self) -> str:
        """A time of use that fits in between delivery and review."""
        owned = self._facts.owned
        if owned >= 8:
            return self._dice.pick(("uma semana", "três dias", "cinco dias", "poucos dias"))
        if owned >= 3:
            return self._dice.pick(("dois dias", "poucos dias", "um dia"))
        return self._dice.pick(("um dia", "poucas horas", "duas horas"))

    def _date(self, day: date | None) -> str:
        """Only a first date may go without its month."""
        assert day is not None, "a phrase names the day of a delivery that was not"
        return date_text(self._dice, day, day_only=self._day_only)

    def _came(self) -> tuple[int, int]:
        """(How many items came, how many are missing), the same all through a review."""
        if "came" not in self._pairs:
            came = self._dice.between(1, self._facts.items - 1) if self._facts.items > 2 else 1
            self._pairs["came"] = (str(came), str(self._facts.items - came))
        came_text, missing = self._pairs["came"]
        return int(came_text), int(missing)

    def _those_came(self) -> str:
        count = self._came()[0]
        return (
            f"{self._dice.pick(('veio', 'chegou') if count == 1 else ('vieram', 'chegaram'))} "
            f"{self._count(count)}"
        )

    def _missing(self) -> str:
        count = self._came()[1]
        return f"{self._count(count)} {'item' if count == 1 else 'itens'}"

    def _those_missing(self) -> str:
        one = self._came()[1] == 1
        verb = self._dice.pick(
            ("faltou", "não veio", "está faltando") if one else ("faltaram", "não vieram", "faltam")
        )
        return f"{verb} {self._missing()}"

    def _count(self, number: int) -> str:
        return NUMBERS[number] if number <= 10 and self._dice.chance(0.5) else str(number)

    def _variant(self, kind: str, *, came: bool) -> str:
        """A colour or a size: the one that was ordered, or another one that came instead."""
        if kind not in self._pairs:
            ordered, other = self._dice.shuffled(_VARIANTS[kind])[:2]
            self._pairs[kind] = (ordered, other)
        return self._pairs[kind][came]


def _tidy(text: str) -> str:
    """Single spaces, none before punctuation."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r" ([,.?!\]])", r"\1", text).replace("[ ", "[")


# How people type. Noise works on words and leaves everything else alone, so the marks of `reviews`
# stay where they are. Words that decide the gold (negations, strong words, recommendations) are
# never misspelt beyond accents, case and the usual abbreviations, so that a reader can still label
# the text.


@dataclass(frozen=True, slots=True)
class Style:
    """How carefully somebody writes; probabilities are per word, per sentence or per comma."""

    name: str
    cased: float
    """A sentence begins with a capital."""
    typos: float
    accents_lost: float
    """A word loses its accents."""
    slang: float
    """A word with an internet spelling gets it."""
    tight_commas: float
    """The space after a comma is forgotten."""
    loose: float
    """Sentences are strung together with commas or nothing instead of full stops."""
    stop: float
    """The text ends in a full stop."""
    exclaims: float
    """The text ends in exclamation marks."""
    capitals: bool
    formal: bool


STYLES = {
    name: Style(name, **chances, capitals=name == "shouting", formal=name == "formal")
    for name, chances in SHARES["styles"].items()
}

SLANG = {
    "você": ("vc",), "vocês": ("vcs",), "também": ("tbm", "tb"), "muito": ("mto", "mt"), "muita": ("mta",),
    "porque": ("pq",), "quando": ("qdo", "qnd"), "beleza": ("blz",), "demais": ("d+",), "não": ("n", "nao", "ñ"),
    "que": ("q", "que"), "mesmo": ("msm",), "hoje": ("hj",), "tudo": ("td",), "obrigado": ("obg",),
    "obrigada": ("obg",), "está": ("tá",), "estou": ("tô", "to"), "para": ("pra",), "depois": ("dps",),
    "mensagem": ("msg",), "mensagens": ("msgs",), "qualidade": ("qualidade", "qlde"), "comigo": ("cmg",),
    "problema": ("prob", "problema"), "agora": ("agr", "agora"), "nada": ("nd", "nada"),
    "verdade": ("vdd",), "aqui": ("aki", "aqui"), "alguém": ("alguem",),
    "ninguém": ("ninguem", "ngm"), "quero": ("qro", "quero"), "vezes": ("vzs", "vezes"), "abraço": ("abs",),
    "valeu": ("vlw",), "internet": ("net", "internet"), "celular": ("cel", "celular"),
}  # fmt: skip
"""Internet spellings."""
PHRASES = (("com certeza", "ctz"), ("para o ", "pro "), ("para a ", "pra "), ("por favor", "pfv"))

_WORD = re.compile(r"[^\W\d_]+")
_KEPT = re.compile(
    rf"(?:nao|nem|nunca|jamais|sem|nada|mais|so|ja|ainda|mas|novamente|outras|vezes|medo|"
    rf"{STRONG_PRAISE}|{STRONG_COMPLAINT}|{INTENSIFIERS}|"
    r"(?:recomend|indic|compr|volt|atras|quebr|defeit|errad|receb|cheg|entreg|frete|atend|respond|praz|igual)\w*)"
)
"""Words, without accents, that no typo touches."""
_TYPO_FROM = 5
"""Letters that a word has at least to be mistyped."""


def spell_text(dice: Dice, text: str, style: Style) -> str:
    """The text as somebody of this style types it."""
    if style.slang and dice.chance(style.slang):
        for phrase, short in PHRASES:
            text = text.replace(phrase, short)
    text = _WORD.sub(lambda match: _word(dice, match.group(), style), text)
    if style.slang:
        text = text.replace("pra a ", "pra ").replace("pra o ", "pro ")
    if style.tight_commas:
        text = re.sub(r", (?=\D)", lambda _: "," if dice.chance(style.tight_commas) else ", ", text)
    return text.upper() if style.capitals else text


def _word(dice: Dice, word: str, style: Style) -> str:
    if style.slang and word in SLANG and dice.chance(style.slang):
        return dice.pick(SLANG[word])
    if (
        style.typos
        and len(word) >= _TYPO_FROM
        and dice.chance(style.typos)
        and not _KEPT.fullmatch(fold_accents(word))
    ):
        word = _mistype(dice, word)
    if style.accents_lost and not word.isascii() and dice.chance(style.accents_lost):
        word = _without_accents(word)
    return word


def _mistype(dice: Dice, word: str) -> str:
    """A swap, a missing letter or a doubled one, never at the first letter."""
    place = dice.between(1, len(word) - 2)
    kind = dice.random()
    if kind < 0.45:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    if kind < 0.8:
        return word[:place] + word[place + 1 :]
    return word[: place + 1] + word[place:]


def _without_accents(word: str) -> str:
    bare = fold_accents(word)
    return "".join(b.upper() if w.isupper() else b for b, w in zip(bare, word, strict=True))


OPEN, CLOSE, END = "\ue000", "\ue001", "\ue002"
"""Marks in a text in the making: where the complaint's span begins and ends, and after what it may
be cut off."""
MARKS = (OPEN, CLOSE, END)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a review."""

    text: str
    kind: str
    """The point it makes, or before, more, after, closing."""
    side: int
    """1 for, -1 against, 0 neither."""


_JOINTS = shares_by("joints")
_ASIDE = ("before", "more", "after", "closing")
_SENTENCE = re.compile(
    "o|a|os|as|ninguém|não|só|já|ainda|até|nem|me|eu|fui|fiquei|estou|tive|chegou|veio|foi|era|vieram|gostei|"
    "amei|adorei|recomendo|indico|comprarei|compraria|voltarei|vou|super|jamais|nunca|atrasou|recebi|demorou|"
    "levou|esperei|paguei|pedi|comprei|mandaram|enviaram|entregaram|cancelaram|venderam|testei|usei|abri|achei|"
    "vi|liguei|lavei|montei|cumpriram|responderam|tiraram|cabe|faltou|faltaram|falta|faltam|prometeram|disseram|"
    "falaram|vale|valeu|deu|correu|instalei|reclamei|tentei|mandei|solicitei|acertei|surpreendeu|minha|meu|com|"
    "essa|esse"
)
"""First words of clauses that are whole sentences, so that "e" or "só que" may stand before
them."""
_PLACES = ("moro", "é a", "compro pela")


def joining_words(dice: Dice, before: Clause, after: Clause, style: Style) -> str:
    """What stands between two clauses."""
    if before.text.rstrip("".join(MARKS))[-1] in "?!":
        return " "
    if before.side < 0 and after.kind == "recommends":
        return dice.weighted(_JOINTS["still"])
    if before.side * after.side < 0:
        kinds = (
            "contrast_formal"
            if style.formal
            else "contrast_loose"
            if dice.chance(style.loose)
            else "contrast"
        )
        drawn = dice.weighted(_JOINTS[kinds])
        return drawn if _is_sentence(after) or "só que" not in drawn.lower() else ", mas "
    aside = before.kind in _ASIDE or after.kind in _ASIDE
    if (
        not aside
        and before.side < 0
        and after.side < 0
        and after.kind not in ("refuses", "displeased")
    ):
        if before.kind not in ("refuses", "displeased") and dice.chance(0.35):
            return dice.weighted(_JOINTS["worse"])
    elif not aside and before.side > 0 and after.kind.startswith("praise") and dice.chance(0.04):
        return dice.weighted(_JOINTS["moreover"])
    kinds = "formal" if style.formal else "loose" if dice.chance(style.loose) else "plain"
    drawn = dice.weighted(_JOINTS[kinds])
    if drawn == " e " and not _takes_and(before, after):
        return ". " if style.formal or not dice.chance(style.loose) else ", "
    if (
        before.kind == "before"
        and not style.formal
        and _takes_and(before, after)
        and dice.chance(0.4)
    ):
        return " e "
    return drawn


def _takes_and(before: Clause, after: Clause) -> bool:
    if after.kind in ("more", "after", "closing", "displeased", "lukewarm") or not _is_sentence(
        after
    ):
        return False
    if before.text.startswith(_PLACES):
        return False
    return " e " not in before.text and " e " not in after.text


def _is_sentence(clause: Clause) -> bool:
    words = clause.text.strip("".join(MARKS)).split(" ")
    if len(words) > 1 and _SENTENCE.fullmatch(words[0]):
        return True
    return words[0] in ("recomendo", "gostei", "amei", "adorei")


def capitalise(text: str) -> str:
    """The text with its first letter as a capital, past marks and quotes."""
    for place, letter in enumerate(text):
        if letter.isalpha():
            return text[:place] + letter.upper() + text[place + 1 :]
        if letter.isdigit():
            return text
    return text


def join_clauses(dice: Dice, clauses: list[Clause], style: Style, *, lines: bool) -> str:
    """All clauses as one text, without an end mark.

    Args:
        dice: where choices are drawn from.
        clauses: at least one.
        style: how carefully the person writes.
        lines: whether sentences may begin on a new line.
    """
    text = capitalise(clauses[0].text) if dice.chance(style.cased) else clauses[0].text
    for before, after in pairwise(clauses):
        drawn = joining_words(dice, before, after, style)
        begins = not drawn.strip() or drawn.strip()[-1] in ".!?"
        if lines and (drawn.strip() in ("", ",", ".", "!") and dice.chance(0.75)):
            stop = "" if style.loose > 0.3 or drawn == ", " else drawn.strip()
            drawn, begins = stop + ("\n\n" if dice.chance(0.15) else "\n"), True
        elif drawn == " " and before.text.rstrip("".join(MARKS))[-1] not in "?!":
            begins = False
        if style.cased < 0.5 and drawn[0] == "." and len(drawn) > 2:
            drawn = drawn.lower()
        new = capitalise(after.text) if begins and dice.chance(style.cased) else after.text
        text += drawn + new
    return text
