"""Writes typed actions as plain-text steps, in English or Portuguese, such that reading gives the same actions."""

from collections.abc import Callable, Mapping, Sequence

from plumbline_forms.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Done,
    Navigate,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.plans.read import AROUND_URL, read_step
from plumbline_forms.suite.declaration import Language

Quote = Callable[[str], str]
_TEMPLATES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "marker": "Step {}: ",
        "navigate": "Navigate to {}",
        "type": "Type {} into the {} field",
        "append": "Append {} to the {} field",
        "select": "Select {} from the {} field",
        "check": "Check the {} checkbox",
        "check option": "Check {} in the {} group",
        "uncheck": "Uncheck the {} checkbox",
        "uncheck option": "Uncheck {} in the {} group",
        "attach": "Attach {} to the {} field",
        "click": "Click on {}",
        "click field": "Click on the {} field",
        "click box": "Click on the {} checkbox",
        "submit": "Click the Submit button",
        "button": "Click the {} button",
        "press": "Press {}",
    },
    "pt": {
        "marker": "Passo {}: ",
        "navigate": "Acesse {}",
        "type": "Digite {} no campo {}",
        "append": "Acrescente {} ao campo {}",
        "select": "Selecione {} no campo {}",
        "check": "Marque a caixa {}",
        "check option": "Marque {} no grupo {}",
        "uncheck": "Desmarque a caixa {}",
        "uncheck option": "Desmarque {} no grupo {}",
        "attach": "Anexe {} ao campo {}",
        "click": "Clique em {}",
        "click field": "Clique no campo {}",
        "click box": "Clique na caixa de seleção {}",
        "submit": "Clique no botão Enviar",
        "button": "Clique no botão {}",
        "press": "Pressione {}",
    },
}


def write_steps(actions: Sequence[Action], language: Language = "en") -> str:
    """The actions as numbered steps, one to a line."""
    marker = _TEMPLATES[language]["marker"]
    return "\n".join(marker.format(number) + write_step(action, language) for number, action in enumerate(actions, 1))


def write_step(action: Action, language: Language = "en") -> str:
    """One step without its number.

    Quotes inside a value stay as they are unless that would be read as something else; then they are escaped.
    """
    plain = _sentence(action, language, _plain)
    return plain if read_step(plain) == action else _sentence(action, language, _escaped)


def _plain(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + "'"


def _escaped(text: str) -> str:
    inner = _plain(text)[1:-1].replace("'", "\\'").replace('"', '\\"')
    return f"'{inner}'"


def _sentence(action: Action, language: Language, quote: Quote) -> str:
    words = _TEMPLATES[language]
    match action:
        case Navigate(url):
            simple = "/" in url and url.isascii() and url.isprintable() and not set(url) & set(" '\"`*\\")
            return words["navigate"].format(url if simple and url == url.strip(AROUND_URL) else quote(url))
        case Type(label, text, clear):
            return words["type" if clear else "append"].format(quote(text), quote(label))
        case Select(label, option):
            return words["select"].format(quote(option), quote(label))
        case Check(label, option):
            return _boxed(words, "check", label, option, quote)
        case Uncheck(label, option):
            return _boxed(words, "uncheck", label, option, quote)
        case Attach(label, file):
            return words["attach"].format(quote(file), quote(label))
        case Click(label, what):
            return words[f"click {what}" if what else "click"].format(quote(label))
        case Submit(label):
            return words["button"].format(quote(label)) if label else words["submit"]
        case Press(keys):
            return words["press"].format(quote(keys))
        case Done(text, success):
            state = "Done" if success else "Done without success"
            return f"{state}: {quote(text)}" if text else state


def _boxed(words: Mapping[str, str], verb: str, label: str, option: str, quote: Quote) -> str:
    if option:
        return words[f"{verb} option"].format(quote(option), quote(label))
    return words[verb].format(quote(label))
