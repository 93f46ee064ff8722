"""What the server received, exactly, and what of it counts as the submission."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Entries = Mapping[str, tuple[str, ...]]
"""Values by name, in the order received; a name sent twice has two values."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One POST."""

    number: int
    """From 1, within the episode."""
    page: int
    """Of the wizard, from 1."""
    entries: Entries
    files: Entries
    """Names of the files by control; a control without a file is not here."""
    errors: Mapping[str, str]
    """What the server complained about, by field name; empty where it accepted the page."""
    complete: bool
    """Whether the form was complete with it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A complete form, all pages together."""

    entries: Entries
    files: Entries


def submission_of(receipts: Sequence[Receipt]) -> Submission | None:
    """The first complete form among the receipts; None where there is none.

    The first, because what has been sent cannot be taken back: a clerk works on what came first, and a plan that
    sends an empty form and a full one after it has sent an empty form.
    """
    pages: dict[int, Receipt] = {}
    for receipt in receipts:
        if receipt.errors:
            continue
        pages[receipt.page] = receipt
        if receipt.complete:
            entries: dict[str, tuple[str, ...]] = {}
            files: dict[str, tuple[str, ...]] = {}
            for page in sorted(pages):
                entries |= pages[page].entries
                files |= pages[page].files
            return Submission(entries, files)
    return None
