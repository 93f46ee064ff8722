"""The words of the plain-text steps, English and Portuguese, as one table.

A step is `Step 3: Type 'v' into the 'L' field`: a marker, a verb, and one or two arguments joined by a linking word.
Quantifiers are bounded and nothing nests, so that reading takes time in proportion to the text, whatever it is.
"""

import re

QUOTES = {"'": "'", '"': '"', "“": "”", "‘": "’", "«": "»", "`": "`"}
"""Opening quotes, and what closes them."""
_OPEN = "[" + re.escape("".join(QUOTES)) + "]"
_CLOSE = "[" + re.escape("".join(set(QUOTES.values()))) + "]"

MARKER = re.compile(
    r"\s{0,16}(?:[-*•>]\s{1,3})?[*_#]{0,3}\s?(?:(?P<word>step|passo|etapa|action|ação|acao)\s{0,2}#?\s?)?"
    r"(?P<number>[(\[]?\d{1,4}(?:\.\d{1,3})?)?[*_]{0,2}(?:\s{0,2}[:.)\]–—-]{1,2})?[*_]{0,2}\s{0,4}",
    re.IGNORECASE,
)
"""What may stand before the verb; it matches nothing, too."""

_VERBS = {
    "navigate": r"navigate\b(?:\s+to)?|go\s+to|browse\s+to|open|visit|acesse"
    r"|navegue(?:\s+(?:até|para|a))?|abra|vá\s+(?:para|até|a)",
    "append": r"append|add|acrescente|adicione",
    "type": r"type(?:\s+in)?|enter|input|write|insert|put|fill\s+(?:in|out)|fill|set|digite|escreva|insira"
    r"|informe|preencha|coloque|defina",
    "select": r"select|choose|pick|selecione|escolha",
    "uncheck": r"uncheck|untick|unmark|deselect|desmarque|desative",
    "check": r"check|tick|mark|enable|marque|assinale|ative",
    "attach": r"attach|upload|anexe|carregue|envie\s+o\s+arquivo",
    "submit": r"submit(?:\s+(?:the|this)\s+(?:form|page))?|envie\s+o\s+formulário|enviar(?:\s+o\s+formulário)?",
    "click": r"click(?:\s+on)?|tap(?:\s+on)?|clique(?:\s+(?:em|no|na))?|toque(?:\s+(?:em|no|na))?",
    "press": r"press|hit|pressione|aperte",
    "done": r"done|finish(?:ed)?|concluído|pronto|fim",
}
VERB = re.compile("|".join(f"(?P<{name}>(?:{words})(?![\\w-]))" for name, words in _VERBS.items()), re.IGNORECASE)

_ARTICLES = r"(?:the|an?|os?|as?|el[ae])\s{1,3}"
_NOUN = (
    r"(?:check\s?box|radio|text|input|drop-?\s?down|date|file|upload|number|list|option|group|field|box|area|textarea|menu|"
    r"button|link|control|form|key|caixa(?:\s+de\s+(?:seleção|texto))?|campo(?:\s+de\s+\w{1,12})?|área(?:\s+de\s+texto)?|"
    r"lista|menu|grupo|opção|botão|arquivo|tecla|combo)"
)
LEAD = re.compile(rf"(?:{_ARTICLES})?(?:{_NOUN}\s{{1,3}}){{0,2}}(?:labell?ed\s{{1,3}}|called\s{{1,3}})?", re.IGNORECASE)
"""Article and nouns before an argument."""
TAIL = re.compile(rf"(?:\s{{1,3}}{_NOUN}){{1,3}}\s{{0,3}}[.;!]?\s{{0,3}}$", re.IGNORECASE)
"""Nouns after an argument, at the end of the line."""
TAIL_LENGTH = 60

_LINKS = {
    "type": r"into|inside|in|to|on|at|for|dentro\s+d[oa]|n[oa]|em|ao|à|para",
    "append": r"to|into|in|ao|à|n[oa]|em",
    "select": r"from|in|for|as|under|of|on|d[oa]|n[oa]|em|de|para",
    "check": r"in|from|for|under|of|n[oa]|d[oa]|em|de",
    "uncheck": r"in|from|for|under|of|n[oa]|d[oa]|em|de",
    "attach": r"to|into|in|for|as|on|ao|à|n[oa]|em|para",
}
_WITH = r"with|to|as|com|como|para"


def _quoted(words: str, *, tail: bool) -> re.Pattern[str]:
    noun = rf"(?:\s{{1,3}}{_NOUN}){{0,2}}" if tail else ""
    lead = LEAD.pattern
    # A look-ahead, so that a quote that opens the one may close the other.
    return re.compile(rf"{_CLOSE}(?={noun}\s{{1,3}}(?:{words})\s{{1,3}}{lead}({_OPEN}))", re.IGNORECASE)


QUOTED_LINK = {name: _quoted(words, tail=False) for name, words in _LINKS.items()}
"""From the quote that closes a value to the one that opens a label: `' into the '`."""
BARE_LINK = {
    name: re.compile(rf"\s{{1,3}}(?:{words})\s{{1,3}}{LEAD.pattern}", re.IGNORECASE) for name, words in _LINKS.items()
}
"""The same without quotes."""
QUOTED_WITH = _quoted(_WITH, tail=True)
"""From label to value: `' field with '`."""

BUTTON = re.compile(r"\b(?:button|botão)\b", re.IGNORECASE)
BOX = re.compile(r"\b(?:check\s?box|radio|option|caixa(?:\s+de\s+seleção)?|opção)\b", re.IGNORECASE)
FIELD = re.compile(r"\b(?:field|area|textarea|box|input|drop-?\s?down|campo|área|lista)\b", re.IGNORECASE)
SUBMIT_WORDS = frozenset(
    {"submit", "send", "enviar", "envie", "submeter", "confirm", "confirmar", "save", "salvar", "ok"}
)
"""A button named by one of these words is the one that sends the page, whatever it reads."""
