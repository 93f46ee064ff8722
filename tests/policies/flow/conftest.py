"""A tiny flow network whose zero-initialised parts are filled with numbers, so that it says
something."""

import pytest
import torch

from conftest import WORDS
from plumbline.policies import open_policy
from plumbline.policies.flow.network import FlowConfig, FlowNetwork
from plumbline.policies.flow.options import FlowModel
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import TinySection

VOCABULARY = 280


def make(folder, **options):
    """A tokenizer from the tiny model, and a network of our own choosing with lively weights."""
    tiny = TinySection(hidden=16, layers=1, heads=2, vocabulary=VOCABULARY, context=64)
    make_tiny(folder, tiny, WORDS * 10, seed=0, family="flow")
    vocabulary = FlowNetwork.from_pretrained(folder).config.vocabulary
    config = FlowConfig(
        vocabulary=vocabulary, hidden=16, conditioning=8, layers=1, heads=2,
        **{"attention": "prefix", "context": 64, **options},
    )  # fmt: skip
    network = FlowNetwork(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
        network.head.weight.mul_(3)
    network.save_pretrained(folder)
    return folder


def opened(folder, **options):
    section = FlowModel(name=str(folder), **{"canvas": 4, "attention": "prefix", **options})
    return open_policy(section, str(folder))


@pytest.fixture(scope="session")
def flow_folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("models") / "flow")


@pytest.fixture(scope="session")
def policy(flow_folder):
    """Tests must not change its weights."""
    return opened(flow_folder)
