"""A run at an address: it works in a folder of this machine, and what it leaves there is published as it goes on.

A thread publishes: training hands it the state of the folder at every landmark (a checkpoint, an evaluation, the end of
a stage) and goes on. A state that is still waiting when the next one comes is passed over. What the store refuses is
tried again, then said in an event, and at the next landmark tried anew; at the end of the run it is an error.
"""

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plumbline.errors import DataError, PlumblineError, RunError, StorageError
from plumbline.runs import claims
from plumbline.runs.cards import CARD
from plumbline.runs.claims import MARK
from plumbline.runs.remote.address import NOTE, checked, folder_for, join
from plumbline.runs.remote.fetch import DamagedError, checkpoint_keys, download, read_manifest
from plumbline.runs.remote.here import WRITTEN_HERE
from plumbline.runs.remote.lock import KEY, Lock
from plumbline.runs.remote.manifest import CHECKPOINTS, MODELS, OBJECTS, RUN, Manifest
from plumbline.runs.remote.publish import LINKS, Changed, Publisher, State, read_note, write_note
from plumbline.runs.remote.store import Store
from plumbline.runs.run import RUN as KIND
from plumbline.runs.run import Run, Silent, in_use, is_blank, is_run
from plumbline.storage import clear_os_errors

OWN = frozenset({RUN, KEY, MARK, OBJECTS, CHECKPOINTS, MODELS})
"""What a run leaves at its address."""
NOT_PUBLISHED = frozenset({".lock", NOTE, LINKS, CHECKPOINTS, MODELS, "wandb", "engine"})
"""Of a run's folder: what is of this machine alone. W&B keeps names of the user and the machine, an engine its log and
the weights that it serves."""
ATTEMPTS = 5
"""At a state that changes while it is read."""
Tell = Callable[[str], None]


class Keeper(Silent):
    """The observer of a run that has it published."""

    def __init__(self, publisher: Publisher, said: list[str]) -> None:
        self.publisher, self._said = publisher, said
        self._waiting: State | None = None
        self._wake, self._end = threading.Condition(), False
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="plumbline-publish", daemon=True)
        self._thread.start()

    def stage(self, name: str, total: int, done: int) -> None:
        """See `Observer`."""

    def metrics(self, row: object) -> None:
        """See `Observer`."""

    def close(self) -> None:
        """See `Observer`; the end is published by `finish`, after the run's own last words."""

    def landmark(self, run: Run) -> None:
        """See `plumbline.runs.run.Keeps`: take the state of the folder, and let the thread publish it.

        Raises:
            RunError: another process has taken the run over.
            StorageError: this disk is full.
        """
        with self._wake:
            said, self._said, failed = self._said, [], self._failed
        for message in said:
            run.event("remote", message)
        if failed is not None:
            raise failed
        if not is_blank(run.folder):
            self._hand(self.publisher.state())

    def finish(self) -> None:
        """Publish what the folder holds now, and end the thread.

        Raises:
            RunError: another process has taken the run over.
            StorageError: the store does not answer.
        """
        with self._wake:
            if self._waiting is not None:
                self._waiting.let_go()
            self._waiting, self._end = None, True
            self._wake.notify_all()
        while self._thread.is_alive():  # a wait without an end would not hear Ctrl-C
            self._thread.join(timeout=0.2)
        if self._failed is not None:
            raise self._failed
        if not is_blank(self.publisher.folder):
            self._publish(self.publisher.state())

    def _hand(self, state: State) -> None:
        with self._wake:
            if self._waiting is not None:
                self._waiting.let_go()
            self._waiting = state
            self._wake.notify_all()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting is not None or self._end)
                state, self._waiting = self._waiting, None
            if state is None:
                return
            try:
                self._publish(state)
            except (StorageError, DataError) as error:
                with self._wake:
                    self._said.append(f"not published yet: {error.cause}; it is tried again at the next checkpoint")
            except Exception as error:  # noqa: BLE001 - it must not pass in silence with this thread
                self._failed = error
                return

    def _publish(self, state: State) -> None:
        for _ in range(ATTEMPTS):
            try:
                return self.publisher.publish(state)
            except Changed:
                state.let_go()
                state = self.publisher.state()
            finally:
                state.let_go()
        raise StorageError(f"the files in {self.publisher.folder} change while they are read", "use --resume")


@contextmanager
def published(address: str, *, resume: bool, tell: Tell) -> Iterator[tuple[Path, Keeper]]:
    """The folder in which the run at an address works, and the observer that publishes it.

    Where the run goes on that was written by another machine, it is fetched first: recipe, records, models and
    checkpoints, each verified. What is in the folder and is not what the address went on from is set aside.

    Args:
        address: of the run.
        resume: go on with what is there.
        tell: is told what takes a while, and what was set aside.

    Raises:
        RunError: there is a run and `resume` is False; another process is writing it.
        DataError: a file of it is damaged; says which checkpoints are whole.
        StorageError: something else is there; the store does not answer. After the run: not all could be published.
    """
    address = checked(address)
    store, folder, notes = Store(address), folder_for(address), list[str]()
    tell(f"the run at {address} works in {folder}")
    if in_use(folder):
        raise RunError(f"another process is writing {folder}, for {address}", "wait for it, or use --out")
    _check_free(store, resume=resume)
    lock, note = Lock(store), read_note(folder)
    lock.acquire(dead=str(note.get("lock", "")), tell=tell)
    try:
        _bring(store, folder, tell, notes)
        claims.claim(folder, KIND, is_run)
        write_note(folder, {**read_note(folder), "address": address, "lock": lock.id})
        claims.check_links(folder, LINKS)
        shutil.rmtree(folder / LINKS, ignore_errors=True)
        publisher = Publisher(folder, store, lock, files_of)
        publisher.begin()
        WRITTEN_HERE[address] = folder
        with _to_the_end(Keeper(publisher, notes)) as keeper:
            yield folder, keeper
    finally:
        WRITTEN_HERE.pop(address, None)
        lock.release()


@contextmanager
def _to_the_end(keeper: Keeper) -> Iterator[Keeper]:
    """Publish the last state whatever ends the run."""
    where = f"{keeper.publisher.folder} (for {keeper.publisher.store.address})"
    try:
        yield keeper
    except BaseException:
        try:
            keeper.finish()
        except PlumblineError as error:  # what stopped the run is what is said; this stands before it
            print(f"not all of {where} was published: {error}", file=sys.stderr)  # noqa: T201
        raise
    try:
        keeper.finish()
    except StorageError as error:
        raise StorageError(
            f"the run is finished in {where}, and not all of it could be published: {error.cause}",
            "the same command with --resume publishes it when the store answers; nothing is trained again",
        ) from error


def files_of(folder: Path) -> Iterator[Path]:
    """The files of a run that are published, but for its checkpoints."""
    with suppress(FileNotFoundError):
        for top in sorted(folder.iterdir()):
            if top.name in NOT_PUBLISHED or _passing(top.name):
                continue
            if top.is_file():
                yield top
            elif top.is_dir():
                yield from _below(top)
        yield from folder.glob(f"{CHECKPOINTS}/*/begin.json")
        for model in sorted(folder.glob(f"{MODELS}/*/{CARD}")):  # whole ones
            if not model.parent.name.startswith("."):
                yield from _below(model.parent)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(map(_passing, path.relative_to(folder).parts)):
            yield path


def _passing(name: str) -> bool:
    """Whether a name is of what is being written, or of a lock on what is being built."""
    return name.endswith(".tmp") or (name.startswith(".") and (name.endswith(".lock") or claims.UNFINISHED in name))


def _check_free(store: Store, *, resume: bool) -> None:
    """Refuse an address that holds a run, where none goes on, or anything that is no run's."""
    there = {key.partition("/")[0] for key in store.sizes()}
    if RUN in there and not resume:
        raise RunError(
            f"{store.address} already holds a run", "add --resume to go on with it, or --out to write somewhere else"
        )
    if MARK not in there and (others := sorted(there - {KEY})):
        raise StorageError(
            f"{store.address} holds other files ({others[0]}); nothing there was touched",
            "give an address where nothing is yet",
        )
    if MARK not in there:
        store.write(MARK, b"run\n")


def _bring(store: Store, folder: Path, tell: Tell, notes: list[str]) -> None:
    """Fetch the run into its folder, unless the folder is where it was last published from."""
    manifest = read_manifest(store, RUN)
    if manifest is None:
        with clear_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return
    if manifest.digest in read_note(folder).get("seen", []):
        return
    with clear_os_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        tell(f"fetching the run at {store.address}")
        download(store, manifest.files, temporary)
        _bring_checkpoints(store, manifest, temporary, notes)
        write_note(temporary, {"address": store.address, "seen": [manifest.digest]})
        with clear_os_errors(folder):
            if folder.exists() and any(one.name != NOTE for one in folder.iterdir()):
                aside = next(
                    place
                    for number in range(1, 1000)
                    if not (place := folder.with_name(f"{folder.name}.aside-{number}")).exists()
                )
                folder.rename(aside)
                notes.append(f"{folder} was not what {store.address} went on from: it is now {aside}")
            elif folder.exists():
                shutil.rmtree(folder)
            temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _bring_checkpoints(store: Store, manifest: Manifest, folder: Path, notes: list[str]) -> None:
    """Fetch the checkpoints of stages that are not finished: the last must be whole, of the others those that are."""
    for stage, keys in checkpoint_keys(store).items():
        bad: dict[int, DataError] = {}
        for step, key in sorted(keys.items(), reverse=True):
            try:
                found = read_manifest(store, key)
                if found is not None:
                    download(store, found.files, folder)
            except DataError as error:
                bad[step] = error
                shutil.rmtree(folder / key.removesuffix(".json"), ignore_errors=True)  # what of it came before
                continue
            if max(keys) in bad:
                break  # the nearest whole one, which is what is to be said
        if not bad:
            continue
        if f"{MODELS}/{stage}/{CARD}" in manifest.files or max(keys) not in bad:
            left_out = ", ".join(f"step {step}" for step in sorted(bad))
            notes.append(f"damaged checkpoints of {stage} were left out: {left_out}")
            continue
        what = f"the checkpoint of {stage} at step {max(keys)}: {bad[max(keys)].cause}"
        raise DamagedError(what, _way_back(store, keys, bad))


def _way_back(store: Store, keys: dict[int, str], bad: dict[int, DataError]) -> str:
    whole = sorted(set(keys) - set(bad))
    remove = ", ".join(join(store.address, keys[step]) for step in sorted(bad))
    if whole:
        return f"the nearest whole one is step {whole[-1]}: remove {remove}, and the same command goes on from there"
    return f"no other checkpoint of this stage is whole: remove {remove}, and the same command begins the stage anew"
