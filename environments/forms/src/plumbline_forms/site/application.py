"""What may stand behind the site's addresses in place of its own pages: somebody else's application."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from plumbline_forms.site.receipts import Entries
from plumbline_forms.site.view import View

if TYPE_CHECKING:
    from plumbline_forms.site.site import Response


@dataclass(frozen=True, slots=True)
class Taken:
    """What an application received with one POST, and what it answered."""

    entries: Entries
    files: Entries
    refused: str
    """Why it did not take the form; "" where it did."""
    response: "Response"


class Application(Protocol):
    """Forms of one page each. It keeps nothing: episodes and their receipts are the site's."""

    def page(self, view: View) -> "Response":
        """The page of a form."""
        ...

    def take(self, view: View, content_type: str, body: bytes) -> Taken:
        """Receive a form."""
        ...

    def other(self, path: str) -> "Response | None":
        """What lies outside of episodes (styles, pictures); None where there is nothing."""
        ...
