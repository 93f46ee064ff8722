"""One lively tiny model of each family."""

import pytest

from tests.policies.flow.conftest import make as make_flow
from tests.policies.masked.conftest import masked_folder  # noqa: F401 - a fixture
from tests.policies.slots.models import save_mini


@pytest.fixture(scope="session")
def family_folders(tiny_folder, masked_folder, tmp_path_factory):  # noqa: F811 - a fixture
    """{family: directory of a model whose distributions are far from even}."""
    new = tmp_path_factory.mktemp("families")
    return {
        "autoregressive": tiny_folder,
        "masked": masked_folder,
        "slots": save_mini(new / "slots"),
        "flow": make_flow(new / "flow"),
        "flow of a backbone": tiny_folder,
        "flow of masks": make_flow(new / "masks", source="mask", attention="full", context=128),
    }
