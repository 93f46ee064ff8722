"""The model of TRL's runs."""

import pytest

from tests.diagnosis.trl_runs import make_talker


@pytest.fixture(scope="session")
def talker(tiny_folder, tmp_path_factory):
    """See `make_talker`."""
    return make_talker(tiny_folder, tmp_path_factory.mktemp("models") / "talker")
