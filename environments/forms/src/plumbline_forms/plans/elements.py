"""The controls of a form as a browser agent sees them: numbered from 1, page after page, each option by itself.

A browser's own state numbers what is on the screen; this is the same list made from the declaration, so that a plan
can be written before any page was opened. Fields that are shown only later have their numbers from the start.
"""

from dataclasses import dataclass
from functools import lru_cache

from plumbline_forms.site.page import WORDS
from plumbline_forms.suite.declaration import Form


@dataclass(frozen=True, slots=True)
class Element:
    """Something that can be clicked, typed into or chosen from."""

    index: int
    page: int
    kind: str
    """The field's kind, or "button"."""
    label: str
    option: str = ""
    """The text of the option, for elements of a radio group or a group of boxes."""
    offers: tuple[str, ...] = ()
    """The texts of a list's options."""


@lru_cache(maxsize=256)
def elements_of(form: Form) -> tuple[Element, ...]:
    """The elements of a form's pages, in the order of the pages."""
    found: list[Element] = []
    for number, page in enumerate(form.pages, 1):
        for one in page.fields:
            if one.kind in {"radio", "checkboxes"}:
                found += [
                    Element(len(found) + place, number, one.kind, one.label, option.text)
                    for place, option in enumerate(one.options, 1)
                ]
            elif one.kind != "hidden":
                offers = tuple(option.text for option in one.options)
                found.append(Element(len(found) + 1, number, one.kind, one.label, offers=offers))
        last = number == len(form.pages)
        button = form.button if last else WORDS[form.language]["next"]
        found.append(Element(len(found) + 1, number, "button", button))
    return tuple(found)
