"""What has to be fetched or installed for a run."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from plumbline.checks.preflight.shapes import Shapes, folder_of
from plumbline.config.imports import missing
from plumbline.policies import NEEDED
from plumbline.policies.downloads.catalogue import ENTRIES, megabytes
from plumbline.policies.options import PretrainedModel
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.recipe import Recipe


def needs(recipe: Recipe, shapes: Shapes | None) -> list[str]:
    """What has to be fetched or installed first, or will be fetched by the run."""
    return [*_model(recipe.model.name, shapes), *_packages(recipe)]


def _model(name: str | None, shapes: Shapes | None) -> Iterator[str]:
    if name is None or folder_of(name) is not None or is_gguf(name):
        return
    for entry in ENTRIES:
        if Path(name) == Path("models") / entry.name:
            yield f"{name} is not there: `plumbline get {entry.name}` fetches it ({megabytes(entry.download_bytes)})"
            return
    if not is_hub_name(name):
        return  # that nothing is there is an error of the recipe
    size = "a size that is not known here"
    if shapes is not None:
        size = f"about {shapes.parameters * shapes.dtype_bytes / 1e9:.1f} GB ({shapes.parameters:,} weights)"
    yield f"transformers will fetch {name} from the hub: config, tokenizer and *.safetensors, {size}"


def is_hub_name(name: str) -> bool:
    """Whether a name is one of the hub's, and no path."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~", "models/", "runs/")) and not Path(name).exists()


def _packages(recipe: Recipe) -> Iterator[str]:
    model = recipe.model
    wanted = [*NEEDED]
    if isinstance(model, PretrainedModel):
        wanted += ["peft"] * (model.lora is not None) + ["bitsandbytes"] * (model.quantize is not None)
    for name in [*wanted, *recipe.run.trackers]:
        if find_spec("torch.utils.tensorboard" if name == "tensorboard" and find_spec("torch") else name) is None:
            lacking = missing("this recipe", name)
            yield f"{lacking.cause}: {lacking.fix}"
