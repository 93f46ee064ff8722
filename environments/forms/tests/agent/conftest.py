import pytest


@pytest.fixture(scope="session")
def examples(forms):
    """One example of each form."""
    rows = [*forms.examples("test"), *forms.examples("held-out-forms")]
    return {row.stratum: row for row in reversed(rows)}
