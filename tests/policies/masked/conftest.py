"""A tiny bidirectional model with sharpened logits."""

import pytest

from conftest import WORDS, sharpen
from plumbline.policies import open_policy
from plumbline.policies.masked.options import MaskedModel
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import TinySection


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "masked"
    tiny = TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=128)
    make_tiny(folder, tiny, WORDS * 10, seed=0, family="masked")
    sharpen(folder)
    return folder


def opened(folder, **options):
    section = MaskedModel(name=str(folder), **{"canvas": 8, "attention": "prefix", **options})
    return open_policy(section, str(folder))


@pytest.fixture(scope="session")
def policy(masked_folder):
    """Tests must not change its weights."""
    return opened(masked_folder)
