"""Where the forms of a task come from: the forms, their splits, and what identifies them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from plumbline.records import Example
from plumbline.tasks.forms.build import HELD_OUT_FORMS, SEEN, build_split, forms_of, held_out_of
from plumbline.tasks.forms.options import FormsOptions
from plumbline.tasks.forms.site.application import Application
from plumbline.tasks.forms.suite.catalogue import VERSION
from plumbline.tasks.forms.suite.declaration import Form


@dataclass(frozen=True, slots=True)
class Source:
    """Forms and their examples."""

    forms: Mapping[str, Form]
    splits: tuple[str, ...]
    identity: str
    """What decides the forms and their records, as a part of the rubric's identity."""
    build: Callable[[str], list[Example]]
    """The examples of one of the splits."""
    application: Application | None = None
    """What serves the forms; None for the site's own renderer."""


def own_suite(options: FormsOptions) -> Source:
    """Plumbline's own suite, as the options choose it.

    Raises:
        DataError: see `held_out_of`.
    """
    forms = forms_of(options)
    held = held_out_of(options, forms)
    narrow = "" if options.max_fields is None else f":{options.max_fields} fields"
    return Source(
        forms,
        (*SEEN, HELD_OUT_FORMS) if held else SEEN,
        f"suite {VERSION}{narrow}",
        partial(build_split, options=options, forms=forms),
    )
