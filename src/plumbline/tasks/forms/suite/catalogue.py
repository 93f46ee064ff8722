"""All forms by name, in a fixed order, and the ones that are held out whole."""

from collections.abc import Mapping

from plumbline.tasks.forms.suite.declaration import Form
from plumbline.tasks.forms.suite.domains import (
    academic,
    business,
    creative,
    finance,
    health,
    industry,
    legal,
    technology,
)

VERSION = 1
"""Of the declarations and their records: other words, fields or draws are another suite."""
DOMAINS = (academic, business, creative, technology, finance, health, legal, industry)
FORMS: Mapping[str, Form] = {form.name: form for domain in DOMAINS for form in domain.FORMS}
HELD_OUT = ("thesis-defence", "trade-show-booth", "palco-do-festival", "mortgage-precheck", "device-return")
"""Five forms of five domains, one a wizard and one in Portuguese, of which training never sees a record."""
