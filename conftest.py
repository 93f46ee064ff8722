"""Fixtures that several packages share: a tiny model in the standard format, opened through the
real loading path."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Two threads on tiny matrices wait for each other more than they work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Recipes of tests name functions of tests; tests/test_trust_code.py takes this consent away.
os.environ["PLUMBLINE_TRUST_CODE"] = "1"

import functools
import gc
import signal
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import typer.main


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs from all but `pytest -m gpu`, and let nothing wait for the disk.

    Where a device is "auto" GPUs would be taken, and round otherwise. No test pulls the plug, and a
    run of a tiny model waits longer for the disk than it computes; a file that is closed stays an
    error. No package and no command is added while tests run: versions are looked up once, and the
    command line is built once, which takes longer than an error.

    A shell starts what it puts into the background (`make test &`) deaf to Ctrl-C, and so is every
    child of it; tests that interrupt something would then wait for nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.fsync = lambda descriptor: os.fstat(descriptor) and None
    metadata.version = functools.cache(metadata.version)
    typer.main.get_command = functools.cache(typer.main.get_command)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without looking for garbage, of which there is none among modules that are
    imported to stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def _short_cuts_are_tried_again() -> None:
    """What was found for a model of an earlier test, whose code may have been patched, is
    forgotten."""
    if (probe := sys.modules.get("plumbline.policies.autoregressive.probe")) is not None:
        probe._FOUND.clear()  # noqa: SLF001


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_is_left_alone() -> None:
    """Take what was imported and collected out of every collection of garbage that is to come.

    `policies.memory.release` has one before each model of a run: half a second with all modules and
    tests in memory, which is longer than a stage of a tiny model.
    """
    gc.collect()
    gc.freeze()


WORDS = [
    "o produto chegou atrasado e com defeito",
    "não recomendo, 12 dias de atraso",
    "ótima compra, nota 10",
    "sim",
]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """An untrained Llama of 3 layers with sharpened logits, saved as a directory."""
    pytest.importorskip("torch", reason="a tiny model needs torch; pip install '.[train]'")
    return make_sharp(tmp_path_factory.mktemp("models") / "tiny")


def make_sharp(
    folder: Path, layers: int = 2, context: int = 256, seed: int = 0, family: str = "autoregressive"
) -> Path:
    """A tiny model with sharpened logits, and its folder."""
    from plumbline.policies.pretrained.tiny import make_tiny
    from plumbline.recipe import TinySection

    sizes = TinySection(hidden=32, layers=layers, heads=2, vocabulary=300, context=context)
    make_tiny(folder, sizes, WORDS * 10, seed=seed, family=family)
    sharpen(folder)
    return folder


def sharpen(folder: Path, factor: float = 6.0) -> None:
    """Scale the embeddings of a saved model, so that its distributions are not nearly uniform."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    for name in weights:
        if "embed_tokens" in name or "lm_head" in name:
            weights[name] = weights[name] * factor
    save_file(weights, path, metadata={"format": "pt"})


@pytest.fixture(scope="session")
def tiny_policy(tiny_folder):
    """The tiny model as a policy; tests must not change its weights."""
    from plumbline.policies import open_policy
    from plumbline.recipe import ModelSection

    return open_policy(ModelSection(name=str(tiny_folder)), str(tiny_folder))


@pytest.fixture
def plumbline(monkeypatch, capfd):
    """Run the command line in this process; returns exit code, standard output and standard
    error."""

    def run(*arguments: object, stdin: str | None = None):
        import io
        import sys

        from plumbline.cli import main as cli

        monkeypatch.setattr(sys, "argv", ["plumbline", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            cli.main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
        out, err = capfd.readouterr()
        return code, out, err

    return run
