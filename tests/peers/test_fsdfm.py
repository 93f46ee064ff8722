"""The published FS-DFM network, from a checkout of it: converted weights give its logits.

git clone https://github.com/apple/ml-fs-dfm peers/ml-fs-dfm && pip install einops omegaconf
PLUMBLINE_FSDFM=peers/ml-fs-dfm pytest tests/peers/test_fsdfm.py
"""

import importlib
import os
import sys

import pytest
import torch

from plumbline.policies.flow.convert import convert
from plumbline.policies.flow.network import FlowNetwork
from tests.policies.flow.conftest import make

CHECKOUT = os.environ.get("PLUMBLINE_FSDFM")
pytestmark = pytest.mark.skipif(
    CHECKOUT is None, reason="needs a checkout of ml-fs-dfm, named by PLUMBLINE_FSDFM"
)
SIZES = {
    "hidden_size": 32,
    "cond_dim": 16,
    "n_blocks": 3,
    "n_heads": 4,
    "dropout": 0.1,
    "mlp_ratio": 4,
}


@pytest.mark.parametrize("step_conditioned", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_converted_weights_give_the_published_logits(
    tmp_path, monkeypatch, step_conditioned, masked
):
    monkeypatch.syspath_prepend(CHECKOUT)
    published = importlib.import_module("fs_dfm.model.transformer").Transformer
    folder = make(tmp_path / "tokenizer")
    vocabulary = FlowNetwork.from_pretrained(folder).config.vocabulary
    theirs = published(vocabulary, masked, SIZES, dt_conditioned=step_conditioned).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    torch.save({"student_model": theirs.state_dict()}, tmp_path / "checkpoint.pth")
    convert(tmp_path / "checkpoint.pth", tmp_path / "ours", str(folder), heads=4, context=64)
    ours = FlowNetwork.from_pretrained(tmp_path / "ours")
    ids = torch.randint(0, vocabulary, (2, 12), generator=generator)
    times, widths = torch.tensor([0.3, 0.8]), torch.tensor([0.125, 0.25])
    with torch.no_grad():
        wanted = theirs(ids, times, widths) if step_conditioned else theirs(ids, times)
        prefix = ours.encode(ids[:, :4].tolist())
        got = ours.head(ours.hidden_states(prefix, ids[:, 4:], times, widths))
    torch.testing.assert_close(got, wanted[:, 4:], atol=1e-5, rtol=0)
    sys.modules.pop("fs_dfm", None)
