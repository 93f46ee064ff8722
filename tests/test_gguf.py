"""A GGUF file is opened as the model that it was made from, trained and saved like any other, or
refused clearly."""

import subprocess
import sys
import warnings

import pytest
import torch

from plumbline.errors import ModelError
from plumbline.export.export import Export, export
from plumbline.policies import open_policy, opening
from plumbline.policies.pretrained import gguf_file
from plumbline.recipe import LoraSection, options_of
from plumbline.runs.run import Observer
from tests.gguf_files import write_gguf
from tests.policies.families import redraw

CHAT = [{"role": "user", "content": "nota   12, sim"}]


def opened(source, **section):
    return open_policy(
        options_of(section.get("family", "autoregressive")).model(
            name=str(source), device="cpu", dtype="float32", **section
        ),
        str(source),
    )


@pytest.fixture(scope="module")
def tiny_gguf(tiny_folder, tmp_path_factory):
    return write_gguf(tiny_folder, tmp_path_factory.mktemp("gguf") / "tiny.gguf", pre="smollm")


def test_it_is_the_model_and_the_chat_that_it_was_made_from(tiny_folder, tiny_gguf, capfd):
    ours, its = opened(tiny_folder), opened(tiny_gguf)
    weights = its.trainable()
    assert len(weights) == len(ours.trainable())
    for name, weight in ours.trainable().items():
        assert torch.equal(weights[name], weight), name
    assert its.chat.prompt(CHAT) == ours.chat.prompt(CHAT)
    assert its.context == ours.context
    assert capfd.readouterr() == ("", ""), "no bar of transformers' cuts through our view"


def test_digits_are_split_as_smollm_was_trained(tiny_folder, tiny_gguf, tmp_path):
    """Blanks before a number are one piece, as in its own tokenizer; without the split, the last
    one is cut off."""
    split = opened(tiny_gguf).chat.tokenizer.backend_tokenizer.pre_tokenizer
    assert [piece for piece, _ in split.pre_tokenize_str("a  12")] == ["a", "ĠĠ", "1", "2"]
    other = opened(
        write_gguf(tiny_folder, tmp_path / "other.gguf")
    ).chat.tokenizer.backend_tokenizer.pre_tokenizer
    assert [piece for piece, _ in other.pre_tokenize_str("a  12")] == ["a", "Ġ", "Ġ12"]


def test_four_bit_weights_become_plain_ones_that_are_saved_whole(tiny_folder, tmp_path):
    policy = opened(write_gguf(tiny_folder, tmp_path / "four-bit.GGUF", quantised=True))
    policy.save(tmp_path / "saved", {})
    again = opened(tmp_path / "saved")
    for name, weight in policy.trainable().items():
        assert torch.equal(again.trainable()[name], weight), name
    assert "quantization" not in (tmp_path / "saved" / "config.json").read_text()


def test_a_lora_adapter_on_it_finds_its_base_again(tiny_gguf, tmp_path):
    policy = opened(tiny_gguf, lora=LoraSection(rank=2))
    redraw(policy, 1.0)
    policy.save(tmp_path / "adapter", {})
    again = opened(tmp_path / "adapter", lora=LoraSection(rank=2))
    assert again.trainable()
    for name, weight in policy.trainable().items():
        assert torch.equal(again.trainable()[name], weight), name


@pytest.mark.parametrize("kept", [10, 2000, 6000, 0.5, 0.999])
def test_a_file_cut_short_says_so(tiny_gguf, tmp_path, kept):
    whole = tiny_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: kept if kept > 1 else int(kept * len(whole))])
    with pytest.raises(ModelError, match=r"cut\.gguf") as caught:
        opened(path)
    assert "download it again" in caught.value.fix


def test_what_is_no_readable_gguf_is_refused_with_its_cause(tiny_folder, tmp_path):
    clip = write_gguf(tiny_folder, tmp_path / "clip.gguf", architecture="clip")
    with pytest.raises(ModelError, match="architecture clip") as caught:
        opened(clip)
    assert "architecture clip" in caught.value.fix
    with pytest.raises(ModelError, match=r"no config\.json") as caught:
        opened(tmp_path)
    assert str(clip) in caught.value.fix, "a folder of GGUF files names the first"


def test_four_bit_loading_over_it_is_refused(tiny_gguf):
    with pytest.raises(ModelError, match=r"model\.quantize: 4bit"):
        opened(tiny_gguf, quantize="4bit", lora=LoraSection(rank=2))


def test_without_the_package_gguf_it_says_what_to_install(tiny_gguf, monkeypatch):
    gguf_file._read.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match="gguf") as caught:
        opened(tiny_gguf)
    assert "pip install '.[train]'" in caught.value.fix


@pytest.mark.parametrize(
    ("family", "message"), [("masked", "mask token"), ("slots", "no mask token")]
)
def test_the_other_families_say_what_they_lack(tiny_gguf, family, message):
    with pytest.raises(ModelError, match=message):
        opened(tiny_gguf, family=family)


def test_a_large_file_is_said_to_be_converted_at_each_opening(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "LARGE_GGUF", tiny_gguf.stat().st_size)
    with pytest.warns(
        opening.LargeGgufWarning, match=f"plumbline export {tiny_gguf} --out models/tiny"
    ):
        ours = opened(tiny_gguf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(Export(model=str(tiny_gguf), out=tmp_path / "once"), Observer())
        its = opened(tmp_path / "once")
    for name, weight in ours.trainable().items():
        assert torch.equal(its.trainable()[name], weight), name


def test_a_warning_of_a_command_is_a_line_without_the_code_that_gave_it(tiny_gguf, tmp_path):
    asked = ["plumbline", "eval", str(tiny_gguf), "--task", "strict-json", "--limit", "1"]
    script = (
        "import sys; from plumbline.policies import opening; opening.LARGE_GGUF = 0; "
        f"from plumbline.cli import main; sys.argv = {[*asked, '--max-tokens', '4']!r}; main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    said = [line for line in done.stderr.splitlines() if str(tiny_gguf) in line]
    assert any(line.startswith("warning: ") for line in said), done.stderr
    assert ".py:" not in done.stderr
