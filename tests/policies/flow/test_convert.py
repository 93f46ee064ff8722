"""Published checkpoints in."""

import pickle

import pytest
import torch

from plumbline.errors import ModelError
from plumbline.policies.flow.convert import LAYER_NAMES, NAMES, convert
from plumbline.policies.flow.network import FlowConfig, FlowNetwork
from tests.policies.flow.conftest import make, opened

BACK = {mine: theirs for theirs, mine in NAMES.items()}
LAYER_BACK = {mine: theirs for theirs, mine in LAYER_NAMES.items()}


def published(network):
    """The network's weights under the published names, as a wrapped and compiled module saves them."""
    result = {"module._orig_mod.rotary_emb.inv_freq": torch.ones(4)}
    for name, tensor in network.state_dict().items():
        stem, _, kind = name.rpartition(".")
        if stem.startswith("layers."):
            _, number, rest = stem.split(".", 2)
            stem = f"blocks.{number}.{LAYER_BACK[rest]}"
        else:
            stem = BACK[stem]
        result[f"module._orig_mod.{stem}.{kind}"] = tensor
    return result


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "model")


@pytest.mark.parametrize("step_conditioned", [False, True])
@pytest.mark.parametrize("source", ["uniform", "mask"])
def test_a_checkpoint_becomes_a_model(tmp_path, folder, step_conditioned, source):
    plain = FlowNetwork.from_pretrained(folder).config
    config = FlowConfig(
        vocabulary=plain.vocabulary, hidden=16, conditioning=8, layers=2, heads=2, context=32,
        step_conditioned=step_conditioned, source=source,
    )  # fmt: skip
    network, other = FlowNetwork(config), FlowNetwork(config)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    file = tmp_path / "checkpoint.pth"
    torch.save({"step": 3, "teacher_model": published(other), "student_ema_model": published(network)}, file)
    found = convert(file, tmp_path / "converted", str(folder), heads=2, context=32)
    assert found == config
    again = FlowNetwork.from_pretrained(tmp_path / "converted")
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    opened(tmp_path / "converted", attention="full")


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/plumbline-was-here",)


def test_hostile_and_foreign_files_are_refused(tmp_path, folder):
    def attempt(content):
        file = tmp_path / "file.pth"
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            torch.save(content, file)
        convert(file, tmp_path / "out", str(folder), heads=2)

    with pytest.raises(ModelError, match="cannot be read as plain tensors"):
        attempt(pickle.dumps(Evil()))
    with pytest.raises(ModelError, match="cannot be read as plain tensors"):
        attempt(b"not a file of torch's")
    with pytest.raises(ModelError, match="has no weights under"):
        attempt({"optimizer": {}})
    with pytest.raises(ModelError, match=r"lacks .vocab_embed"):
        attempt({"model": {"x": torch.ones(1)}})
    network = FlowNetwork.from_pretrained(folder)
    with pytest.raises(ModelError, match="no FS-DFM network has"):
        attempt({"model": {**published(network), "blocks.0.lora": torch.ones(2)}})
    fewer = {name: tensor for name, tensor in published(network).items() if "attn_out" not in name}
    with pytest.raises(ModelError, match="missing"):
        attempt({"model": fewer})
    with pytest.raises(ModelError, match="there is no file"):
        convert(tmp_path / "nowhere.pth", tmp_path / "out", str(folder))
    assert not (tmp_path / "out").exists()
