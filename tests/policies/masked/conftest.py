"""A tiny bidirectional model with sharpened logits."""

import pytest

from conftest import make_sharp
from plumbline.policies import open_policy
from plumbline.policies.masked.options import MaskedModel


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    return make_sharp(home / "masked", context=128, family="masked")


def opened(folder, **options):
    section = MaskedModel(name=str(folder), **{"canvas": 8, "attention": "prefix", **options})
    return open_policy(section, str(folder))


@pytest.fixture(scope="session")
def policy(masked_folder):
    """Tests must not change its weights."""
    return opened(masked_folder)
