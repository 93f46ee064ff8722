"""What is exported: a run's last model or any other, what it began from, and under which licence that is."""

from dataclasses import dataclass
from pathlib import Path

from plumbline.config.overrides import read_yaml
from plumbline.errors import RecipeError, RunError
from plumbline.policies.downloads.catalogue import ENTRIES
from plumbline.policies.downloads.get import ORIGIN
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.policies.saved import adapter_base, check_source
from plumbline.runs.cards import Card
from plumbline.runs.record import STAGES
from plumbline.runs.remote import local_model
from plumbline.runs.run import Run
from plumbline.storage import SMALL, read_bytes, read_object

UNKNOWN = "unknown: look it up"


@dataclass(frozen=True, slots=True)
class Base:
    """The model that training began from."""

    source: str
    """Where it is on this machine, or its hub name."""
    name: str
    """What the world calls it; where nobody knows, the last part of its path."""
    public: bool
    """Whether others find it by that name."""
    licence: str
    """`UNKNOWN` where neither its files nor the catalogue say it."""
    text: str | None = None
    """Of the licence, where it lies beside the weights."""
    note: str = ""
    """What is different from what the world calls by that name."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model to export, and what is known of it."""

    model: str
    run: Run | None
    """Where its run's records are still beside it."""
    stage: str
    card: Card | None
    base: Base | None
    """None where the weights were made on the spot, from random numbers."""


def find(given: str, public: str | None = None) -> Source:
    """The model of a run's last finished stage, or a model as it is named.

    Args:
        given: a run's folder; or a model directory, GGUF file, address or hub name.
        public: the base's name, where its directory does not say it.

    Raises:
        RunError: the run has no finished stage.
        ModelError: there is no model.
    """
    folder = Path(given)
    if (folder / "recipe.yaml").is_file():
        run = Run.read(folder)
        done = [stage for stage in STAGES if run.is_done(stage)]
        if not done:
            raise RunError(f"{given} has no model yet", "let the run finish a stage")
        return _source(str(run.model(done[-1])), run, done[-1], public)
    model = local_model(given)
    check_source(model)
    place = Path(model).absolute()
    ours = place.parent.name == "models" and (place.parents[1] / "recipe.yaml").is_file()
    return _source(model, Run.read(place.parents[1]) if ours else None, place.name if ours else "", public)


def _source(model: str, run: Run | None, stage: str, public: str | None) -> Source:
    card = Card.read(model)
    base = adapter_base(model)
    if base is None and run is not None:
        base = None if run.recipe.model.name is None else local_model(run.recipe.model.name)
    elif base is None and card is None:  # nothing was trained here: it is its own base
        base = model
    if base is not None and (name := _made_in(base)) is not None:
        base = name or None
    known = None if base is None else base_of(base, public)
    if known is None and public is not None:
        known = Base("", public, True, _listed_licence(public))
    return Source(model, run, stage or (card.stage if card is not None else ""), card, known)


def _made_in(base: str) -> str | None:
    """What a base that a run made in its own folder began from; "" where it is made on the spot, None for any other."""
    run = Path(base).absolute().parents[1] if Path(base).is_dir() and len(Path(base).absolute().parents) > 1 else None
    if run is None or Path(base).absolute().parent.name != "models" or not (run / "recipe.yaml").is_file():
        return None
    return "" if Path(base).name == "base" else None


def base_of(source: str, public: str | None = None) -> Base:
    """What a base's directory says of it, else what the catalogue does."""
    folder = Path(source)
    if not folder.exists():
        name = public or source
        return Base(source, name, True, _listed_licence(name))
    origin = read_object(folder / ORIGIN) if (folder / ORIGIN).is_file() else {}
    entry = next((one for one in ENTRIES if one.name == origin.get("model")), None)
    name = public or (entry.hub if entry is not None else "")
    licence = origin.get("licence") or _said_in(folder / "README.md") or _listed_licence(name)
    file = next((path for path in (folder / "LICENSE", folder / "LICENSE.txt") if path.is_file()), None)
    return Base(
        source,
        name or (folder.stem if is_gguf(source) else folder.absolute().name),
        bool(name),
        str(licence),
        None if file is None else read_bytes(file, limit=SMALL).decode(errors="replace"),
        "" if entry is None else f"{entry.about}; {origin.get('weights', '')}".strip("; "),
    )


def _listed_licence(name: str) -> str:
    return next((one.licence for one in ENTRIES if name and name in {one.name, one.hub}), UNKNOWN)


def _said_in(readme: Path) -> str | None:
    """The licence in the head of a model card, as the hub writes it."""
    if not readme.is_file():
        return None
    head = read_bytes(readme, limit=SMALL).decode(errors="replace")[:20_000].split("---\n")
    try:
        values = read_yaml(head[1], str(readme), strict=False) if len(head) > 2 and not head[0].strip() else None
    except RecipeError:
        return None
    found = values.get("license") if isinstance(values, dict) else None
    return found if isinstance(found, str) else None
