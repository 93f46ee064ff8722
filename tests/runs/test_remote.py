"""Runs and models at addresses: published whole, taken up elsewhere to the bit, and what is said
where that fails."""

import hashlib
import json
import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec", reason="the extra remote is not installed")

from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from plumbline import api  # noqa: E402
from plumbline.errors import (  # noqa: E402
    DataError,
    ModelError,
    PlumblineError,
    RecipeError,
    RunError,
    StorageError,
)
from plumbline.policies import open_policy  # noqa: E402
from plumbline.recipe import parse_recipe  # noqa: E402
from plumbline.runs.remote import (  # noqa: E402
    ManifestEntry,
    Store,
    folder_for,
    is_address,
    local_model,
    local_run,
    manifest_bytes,
    portable_path,
    read_manifest,
    storage_key,
)
from plumbline.runs.remote_sync import Publisher, open_remote_run, published_files  # noqa: E402
from plumbline.runs.run import Run  # noqa: E402
from plumbline.storage import write_json, write_text  # noqa: E402
from plumbline.training import rl  # noqa: E402

RECIPE = {
    "name": "far",
    "seed": 3,
    "task": {"name": "tests.toy:open_toy", "options": {"size": 6}},
    "sft": {"steps": 2, "batch_size": 4, "optimiser": {"learning_rate": 1e-3}},
    "rl": {
        "steps": 4,
        "prompts_per_step": 2,
        "group_size": 4,
        "optimiser": {"learning_rate": 1e-3},
    },
    "sampling": {"max_tokens": 6},
    "evaluation": {"every": 2, "limit": 2, "final": ["val"], "sampled": False},
    "run": {"checkpoint_every": 1, "preflight": False},
}
OUTSIDE = """../evil /etc/evil a/../../evil a/./b a//b a/b/ ./a . .. ... a/. run.json RUN.json run.json. .remote.json
./.remote.json .//.remote.json .Remote.JSON .remote.json. .remote.json/x models/rl/.remote.json a.tmp a.TMP/b
.metrics.jsonl.0011aabb.tmp a\\b a\0b a\x1bb \ud800"""
"""Paths of a manifest that leave its folder, or take the place of a file of ours."""


class Faulty(MemoryFileSystem):
    """A store in memory that can be told to fail."""

    protocol = "faulty"
    store: dict = {}  # noqa: RUF012 - as in fsspec's
    pseudo_dirs = [""]  # noqa: RUF012
    fail = staticmethod(lambda what, path: None)

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(str(path).replace("faulty://", "memory://"))

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        type(self).fail("write", path)
        return super().pipe_file(path, value, mode=mode, **kwargs)

    def put_file(self, lpath, rpath, **kwargs):
        type(self).fail("write", rpath)
        return super().put_file(lpath, rpath, **kwargs)

    def cat_file(self, path, **kwargs):
        type(self).fail("read", path)
        return super().cat_file(path, **kwargs)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty store, an empty cache, and a working directory."""
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    for kind in (MemoryFileSystem, Faulty):
        kind.store.clear()
        kind.pseudo_dirs[:] = [""]
    Faulty.fail = staticmethod(lambda what, path: None)
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    local_model.cache_clear()
    return tmp_path


@pytest.fixture(scope="module")
def recipe(tiny_folder):
    return {**RECIPE, "model": {"name": str(tiny_folder)}}


def run(recipe, address, **how):
    return api.run(recipe, out=address, quiet=True, **how)


def results(folder: Path) -> dict[str, str]:
    """Hashes of everything that the result consists of."""
    paths = [
        *(
            folder / name
            for name in ("recipe.yaml", "metrics.jsonl", "samples.jsonl", "result.json")
        ),
        *sorted((folder / "evaluations").glob("*.json")),
        *sorted(path for path in (folder / "models").rglob("*") if path.is_file()),
    ]
    there = [path for path in paths if path.exists()]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in there
    }


def elsewhere(monkeypatch, tmp_path, name="elsewhere"):
    """Go to another machine: no working folder, no cache."""
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / name / "cache"))
    local_model.cache_clear()


@pytest.fixture(scope="module")
def _whole(recipe, tmp_path_factory):
    """The results of a run at an address that nothing interrupted, and what lies at the address."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("whole"))
        found = results(run(recipe, "memory://whole/x").folder)
    store = Store("memory://whole/x")
    return found, {key: store.read(key) for key in store.sizes()}


@pytest.fixture
def whole(_whole):
    """The results of a run that nothing interrupted."""
    return _whole[0]


def interrupted(recipe, address, monkeypatch, *, after, how=KeyboardInterrupt):
    """Begin a run and end it in the RL step after so many; returns the working folder."""
    honest = rl.update_policy

    def update(*given):
        if given[4] == after:
            raise how
        return honest(*given)

    with monkeypatch.context() as patched:
        patched.setattr(rl, "update_policy", update)
        with pytest.raises(how):
            run(recipe, address)
    return Path.cwd() / folder_for(address)


@pytest.fixture(scope="module")
def _stopped(recipe, tmp_path_factory):
    """What lies at the address of a run that was interrupted after three of its four steps of
    RL."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("stopped"))
        interrupted(recipe, "memory://stopped/x", patched, after=3)
    store = Store("memory://stopped/x")
    return {key: store.read(key) for key in store.sizes()}


@pytest.fixture
def stopped(_stopped):
    """The address of a run that was interrupted on another machine."""
    store = Store("memory://b/runs/x")
    for key, content in _stopped.items():
        store.write(key, content)
    return store.address


def whole_state(store: Store) -> dict[str, str]:
    """Every file that the manifest names, with its hash; asserts that each is there as it was
    put."""
    found = {}
    for path, entry in read_manifest(store).items():
        content = store.read(storage_key(path, entry.sha256))
        assert content is not None, path
        assert (len(content), hashlib.sha256(content).hexdigest()) == entry
        found[path] = entry.sha256
    return found


def steps(files) -> set[str]:
    """The checkpoints among the files of a run."""
    return {path.split("/")[2] for path in files if path.startswith("checkpoints/rl/step-")}


class TestAWholeRun:
    def test_goes_on_elsewhere_to_the_same_bits(self, recipe, whole, stopped):
        assert steps(whole_state(Store(stopped))) == {"step-000002", "step-000003"}
        folder = run(recipe, stopped, resume=True).folder
        mine = results(folder)
        # which names the address
        assert {key for key in whole if mine.get(key) != whole[key]} == {"result.json"}
        assert json.loads((folder / "result.json").read_text())["model"] == f"{stopped}/models/rl"
        there = whole_state(Store(stopped))
        assert {name: there[name] for name in mine} == mine

    def test_needs_resume_and_its_own_place(self, recipe, stopped):
        with pytest.raises(RunError, match="already holds a run"):
            run(recipe, stopped)
        Store("memory://b/data").write("rows.csv", b"1")
        with pytest.raises(StorageError, match=r"rows.csv"):
            run(recipe, "memory://b/data")
        assert Store("memory://b/data").sizes() == {"rows.csv": 1}

    def test_that_went_on_elsewhere_sets_the_older_folder_aside(self, stopped, place, monkeypatch):
        with open_remote_run(stopped, resume=True, tell=print) as (began, _):
            began = began.resolve()
        elsewhere(monkeypatch, place)
        with open_remote_run(stopped, resume=True, tell=print) as (folder, _):
            write_text(folder / "metrics.jsonl", "more\n")
        monkeypatch.chdir(place)
        with open_remote_run(stopped, resume=True, tell=print) as (folder, sync):
            assert (folder / "metrics.jsonl").read_text() == "more\n"
            assert len(sync.notes) == 1
        assert (began.with_name(f"{began.name}.aside-1") / "metrics.jsonl").read_text() != "more\n"
        # nothing has changed since
        with open_remote_run(stopped, resume=True, tell=print) as (_, sync):
            assert not sync.notes

    def test_without_anything_of_it_published_is_not_there(self, recipe):
        with pytest.raises(RecipeError):
            run({**recipe, "task": {"name": "tests.toy:nothing"}}, "memory://b/runs/y")
        assert Store("memory://b/runs/y").sizes() == {}

    def test_in_a_folder_by_its_file_address(self, stopped, place, monkeypatch):
        address = f"file://{place}/far/x"
        with open_remote_run(address, resume=False, tell=print) as (folder, _):
            shutil.copytree(local_run(stopped), folder, dirs_exist_ok=True)
        elsewhere(monkeypatch, place)
        with open_remote_run(address, resume=True, tell=print) as (folder, _):
            assert results(folder) == results(local_run(stopped))
        assert not list((place / "far").rglob("*.tmp"))


class TestFaults:
    def test_a_killed_upload_leaves_no_half_state(self, recipe, place, monkeypatch):
        """The store goes away in the middle and never comes back: what is there is whole, and is
        gone on from."""
        address = "faulty://b/runs/x"
        store, honest = Store(address), rl.update_policy

        def update(*given):
            if given[4] == 1:
                until = time.monotonic() + 60
                while not read_manifest(store) and time.monotonic() < until:
                    time.sleep(0.01)
                fail_after(3)
            return honest(*given)

        monkeypatch.setattr(rl, "update_policy", update)
        with pytest.raises(StorageError, match="is gone"):
            run(recipe, address)
        Faulty.fail = staticmethod(lambda what, path: None)
        before = whole_state(Store(address))
        assert "result.json" not in before
        elsewhere(monkeypatch, place)
        with open_remote_run(address, resume=True, tell=print) as (folder, _):
            said = before["metrics.jsonl"]
            assert hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest() == said

    def test_a_store_that_was_away_is_an_event_and_no_loss(self, recipe, whole):
        address, away = "faulty://b/runs/x", []

        def fail(what, path):
            if what == "write" and "/run.json." in path and len(away) < 1:  # beside its place
                away.append(path)
                raise OSError("the store is away")

        Faulty.fail = staticmethod(fail)
        folder = run(recipe, address).folder
        said = [
            row["message"]
            for row in map(json.loads, (folder / "events.jsonl").open())
            if row["kind"] == "remote"
        ]
        assert len(away) == 1
        assert any("store is away" in one for one in said)
        assert {
            k: v for k, v in results(folder).items() if k in ("metrics.jsonl",)
        }.items() <= whole.items()
        assert whole_state(Store(address))["result.json"] == results(folder)["result.json"]

    def test_a_store_down_at_the_end_is_an_error_and_resume_only_publishes(
        self, recipe, monkeypatch
    ):
        address = "faulty://b/runs/x"

        def fail(what, path):
            if (Path.cwd() / folder_for(address) / "result.json").exists():
                raise OSError("the store is down")

        Faulty.fail = staticmethod(fail)
        with pytest.raises(StorageError, match=r"finished .* is down") as error:
            run(recipe, address)
        assert "--resume publishes it" in error.value.fix
        Faulty.fail = staticmethod(lambda what, path: None)
        monkeypatch.setattr(rl, "update_policy", None)  # nothing may be trained again
        folder = run(recipe, address, resume=True).folder
        assert whole_state(Store(address))["result.json"] == results(folder)["result.json"]

    @pytest.mark.parametrize("damage", ["deleted", "cut", "corrupted"])
    def test_a_damaged_checkpoint_is_named_with_the_way_back(self, recipe, whole, stopped, damage):
        store = Store(stopped)
        tensors = "checkpoints/rl/step-000003/tensors.safetensors"
        content = store.read(tensors)
        if damage == "deleted":
            store.remove([tensors])
        else:
            store.write(
                tensors, content[:-1] + (b"" if damage == "cut" else bytes([content[-1] ^ 1]))
            )
        with pytest.raises(DataError) as error:
            run(recipe, stopped, resume=True)
        assert f"{tensors} at {stopped} is damaged" in error.value.cause
        assert f"remove {stopped}/checkpoints/rl/step-000003, and" in error.value.fix
        assert "resumes from step 2" in error.value.fix
        assert not list(Path("runs").rglob("recipe.yaml"))
        if damage == "corrupted":  # the way back is gone
            store.remove(
                [key for key in store.sizes() if key.startswith("checkpoints/rl/step-000003/")]
            )
            folder = run(recipe, stopped, resume=True).folder
            assert results(folder)["metrics.jsonl"] == whole["metrics.jsonl"]
            assert "checkpoints/rl/step-000003" in (folder / "events.jsonl").read_text()
            whole_state(store)

    def test_a_damaged_record_is_named(self, recipe, stopped):
        store = Store(stopped)
        entry = read_manifest(store)["metrics.jsonl"]
        store.write(storage_key("metrics.jsonl", entry.sha256), b"x" * entry.size)
        for read in (lambda: run(recipe, stopped, resume=True), lambda: local_run(stopped)):
            with pytest.raises(DataError, match=r"metrics\.jsonl .*memory://b/runs/x"):
                read()
        store.write("run.json", store.read("run.json")[:-20])
        with pytest.raises(DataError, match=r"run\.json"):
            local_run(stopped)

    def test_a_full_disk_here_is_named_and_leaves_nothing(self, recipe, stopped, monkeypatch):
        honest = MemoryFileSystem.get_file

        def full(self, key, path, **_):
            if "models/sft" in key:
                raise OSError(28, "No space left on device")
            return honest(self, key, path)

        monkeypatch.setattr(MemoryFileSystem, "get_file", full)
        with pytest.raises(StorageError, match=r"models/sft.*No space left") as error:
            run(recipe, stopped, resume=True)
        assert "free some space" in error.value.fix
        assert not [path for path in Path("runs").rglob("*") if path.is_file()]

    @pytest.mark.parametrize(
        "path",
        OUTSIDE.split(),
    )
    def test_a_manifest_cannot_name_files_outside_of_its_folder_or_of_ours(self, path):
        store = Store("memory://b/runs/x")
        store.write("run.json", json.dumps({"version": 2, "files": {path: [1, "0" * 64]}}).encode())
        with pytest.raises(DataError, match="outside"):
            local_run("memory://b/runs/x")

    def test_a_step_of_thousands_of_digits_is_of_no_checkpoint(self):
        store = Store("memory://b/runs/x")
        files = {
            f"checkpoints/rl/step-{step}/x": [1, "0" * 64]
            for step in ("9" * 5000, "000040", "000041.bak")
        }
        store.write("run.json", json.dumps({"version": 2, "files": files}).encode())
        with pytest.raises(ModelError) as error:
            local_model("memory://b/runs/x/models/rl")
        assert "rl has checkpoints: step 40;" in error.value.fix

    @pytest.mark.parametrize("what", ["pipe", "/dev/zero", "folder"])
    @pytest.mark.parametrize("key", ["run.json", "x"])
    def test_what_is_no_file_in_a_folder_of_this_machine_is_not_waited_for(
        self, tmp_path, key, what
    ):
        place = tmp_path / key
        {"pipe": lambda: os.mkfifo(place), "folder": place.mkdir}.get(
            what, lambda: place.symlink_to(what)
        )()
        store = Store(f"file://{tmp_path}")
        for read in (lambda: store.read(key), lambda: store.get(key, tmp_path / "came", 9)):
            with pytest.raises(StorageError, match=r"named pipe|device|directory"):
                read()

    def test_more_than_was_written_is_not_fetched(self, tmp_path):
        for key in ("run.json", "x"):
            (tmp_path / key).touch()
            os.truncate(tmp_path / key, 2**40)
        store = Store(f"file://{tmp_path}")
        for read in (lambda: store.read("run.json"), lambda: store.get("x", tmp_path / "came", 9)):
            with pytest.raises(DataError, match="1099511627776 bytes"):
                read()

    def test_a_store_of_the_former_layout_is_named(self, recipe):
        store = Store("memory://b/runs/x")
        part = ["objects/a", 1, hashlib.sha256(b"x").hexdigest()]
        store.write(
            "run.json",
            json.dumps({"version": 1, "sha256": "", "files": {"recipe.yaml": [part]}}).encode(),
        )
        for read in (
            lambda: run(recipe, store.address, resume=True),
            lambda: local_run(store.address),
        ):
            with pytest.raises(DataError, match="former layout") as error:
                read()
            assert error.value.fix


class TestTwoWriters:
    def test_a_second_process_of_this_machine_is_refused(self, recipe, stopped):
        with (
            open_remote_run(stopped, resume=True, tell=print) as (folder, _),
            Run.start(parse_recipe(recipe), folder, resume=True),
            pytest.raises(RunError, match="another process"),
        ):
            run(recipe, stopped, resume=True)

    def test_who_puts_second_learns_of_the_first_and_changes_nothing(
        self, stopped, place, monkeypatch
    ):
        with open_remote_run(stopped, resume=True, tell=print) as (folder, _):
            late = Publisher(place / folder, Store(stopped))
            elsewhere(monkeypatch, place)
            with open_remote_run(stopped, resume=True, tell=print) as (other, _):
                write_text(other / "metrics.jsonl", "more\n")
            before = Store(stopped).sizes()
            write_text(place / folder / "metrics.jsonl", "of the first\n")
            with pytest.raises(RunError, match="another process"):
                late.put()
            assert Store(stopped).sizes() == before
            monkeypatch.chdir(place)
            write_text(
                folder / "metrics.jsonl",
                (place / "elsewhere" / other / "metrics.jsonl").read_text(),
            )
            (folder / ".remote.json").write_bytes(
                (place / "elsewhere" / other / ".remote.json").read_bytes()
            )

    def test_a_run_whose_address_was_taken_trains_to_its_end(self, recipe, monkeypatch, whole):
        address, honest, honest_put, quiet = (
            "memory://b/runs/x",
            rl.update_policy,
            Publisher.put,
            threading.Lock(),
        )

        def update(*given):
            if given[4] == 1:
                with quiet:  # not between the look at the manifest and its write
                    other = {"a": ManifestEntry(1, hashlib.sha256(b"x").hexdigest())}
                    Store(address).write("run.json", manifest_bytes(other))
            return honest(*given)

        def put(self):
            with quiet:
                honest_put(self)

        monkeypatch.setattr(rl, "update_policy", update)
        monkeypatch.setattr(Publisher, "put", put)
        with pytest.raises(RunError, match="another process"):
            run(recipe, address)
        assert read_manifest(Store(address)).keys() == {"a"}
        assert results(folder_for(address))["metrics.jsonl"] == whole["metrics.jsonl"]
        assert "another process" in (folder_for(address) / "events.jsonl").read_text()


class TestReaders:
    @pytest.fixture
    def finished(self, whole, _whole):
        store = Store("memory://b/runs/x")
        for key, content in _whole[1].items():
            store.write(key, content)
        return store.address

    def test_take_a_run_by_its_address(self, finished, plumbline, place):
        for command in (
            "report",
            "check",
            f"compare {finished}",
            "runs",
            "route",
            "decide --tree commerce-v4.1",
        ):
            code, out, err = plumbline(*command.split(), finished)
            assert code == 0, (command, err)
            assert out
        code, out, _ = plumbline("runs", "memory://b/runs", "--json")
        assert code == 0
        assert [one["name"] for one in json.loads(out)["runs"]] == ["x"]
        assert not list((place / "cache").rglob("model.safetensors")), (
            "records are read without weights"
        )

    def test_take_a_model_by_its_address_once(self, finished, plumbline, place, monkeypatch):
        code, out, err = plumbline(
            "eval", f"{finished}/models/rl", "--n", "2", "--split", "val", "--json"
        )
        assert code == 0, err
        local_model.cache_clear()
        monkeypatch.setattr(MemoryFileSystem, "get_file", None)  # from here on nothing is fetched
        again = plumbline("eval", f"{finished}/models/rl", "--n", "2", "--split", "val", "--json")
        assert again[1] == out

    def test_a_model_that_is_not_there_names_what_is(self, stopped):
        for asked, said in (
            ("models/rl", "rl has checkpoints: step 2, step 3; models of finished stages: sft"),
            ("checkpoints/rl/step-000009", "the nearest to step 9 of rl: step 2, step 3"),
        ):
            with pytest.raises(ModelError, match="no model") as error:
                local_model(f"{stopped}/{asked}")
            assert said in error.value.fix

    def test_a_recipe_begins_from_a_model_at_an_address(self, recipe, finished, place):
        begun = {
            **recipe,
            "model": {"name": f"{finished}/models/sft", "lora": {"rank": 2}},
            "sft": None,
        }
        begun["rl"] = {**recipe["rl"], "steps": 1}
        begun["task"] = {"name": "tests.toy:open_toy", "options": {"size": 5}}
        folder = api.run(begun, out=place / "mine", quiet=True).folder
        assert f"name: {finished}/models/sft" in (folder / "recipe.yaml").read_text()
        adapter = json.loads((folder / "models" / "rl" / "adapter_config.json").read_text())
        assert adapter["base_model_name_or_path"] == f"{finished}/models/sft"
        assert open_policy(parse_recipe(begun).model, str(folder / "models" / "rl")).engine

    def test_a_run_that_goes_on_while_it_is_read(self, finished, monkeypatch):
        """What a manifest names may be replaced before it is read: then the new manifest holds."""
        store, honest, asked = Store(finished), Store.get, []
        old = read_manifest(store)

        def get(self, key, *place):
            if not asked:
                asked.append(key)
                new = ManifestEntry(2, hashlib.sha256(b"{}").hexdigest())
                store.write(storage_key("result.json", new.sha256), b"{}")
                store.write("run.json", manifest_bytes({**old, "result.json": new}))
                store.remove([storage_key("result.json", old["result.json"].sha256)])
            return honest(self, key, *place)

        monkeypatch.setattr(Store, "get", get)
        assert (local_run(finished) / "result.json").read_text() == "{}"

    def test_a_file_that_went_from_the_run_goes_from_the_cache(self, finished):
        assert (local_run(finished) / "result.json").is_file()
        store = Store(finished)
        store.write(
            "run.json",
            manifest_bytes({k: v for k, v in read_manifest(store).items() if k != "result.json"}),
        )
        assert not (local_run(finished) / "result.json").exists()

    def test_what_goes_from_the_cache_lies_in_it(self, finished, place):
        """Whatever the note says, and wherever links in the cache lead."""
        here = local_run(finished)
        for name in ("thesis.txt", "beside/thesis.txt"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("precious")
        (here / "link").symlink_to(place / "beside")
        (here / "gone.txt").touch()
        said = json.loads((here / ".remote.json").read_text())
        outside = [
            str(place / "thesis.txt"),
            "../" * 9 + str(place / "thesis.txt")[1:],
            "link/thesis.txt",
            3,
            None,
        ]
        write_json(here / ".remote.json", {**said, "files": [*said["files"], *outside, "gone.txt"]})
        assert local_run(finished) == here
        assert not (here / "gone.txt").exists()
        assert (place / "thesis.txt").exists()
        assert (place / "beside/thesis.txt").exists()
        for damaged in ({"address": finished}, {"files": "x"}, {"files": {"a": 1}}):
            write_json(here / ".remote.json", damaged)
            assert local_run(finished) == here

    def test_a_model_at_an_address_brings_no_note(self, tiny_folder, place):
        store = Store("memory://b/noted")
        for path in tiny_folder.iterdir():
            store.write(path.name, path.read_bytes())
        store.write(".remote.json", b'{"address": "s3://evil/x"}')
        here = local_model(store.address)
        assert portable_path(here) == store.address
        assert portable_path(f"{here}/config.json") == f"{store.address}/config.json"

    def test_a_note_counts_where_we_leave_notes_alone(self, tiny_folder, finished, place):
        model = shutil.copytree(tiny_folder, place / "model")
        write_json(model / ".remote.json", {"address": "s3://evil/x"})
        assert portable_path(str(model)) == str(model)
        assert portable_path(str(model / "config.json")) == str(model / "config.json")
        assert portable_path("model") == "model"
        inside = local_run(finished) / "models"
        shutil.copytree(model, inside / "planted")
        assert portable_path(str(inside / "planted")) == f"{finished}/models/planted"
        working = folder_for("memory://b/runs/y")
        shutil.copytree(model, working / "models" / "sft")
        write_json(working / ".remote.json", {"address": "memory://b/runs/y"})
        assert portable_path(str(working / "models/sft")) == "memory://b/runs/y/models/sft"

    def test_a_plain_model_directory(self, tiny_folder, place):
        store = Store("memory://b/plain")
        for path in tiny_folder.iterdir():
            store.write(path.name, path.read_bytes())
        here = Path(local_model(store.address))
        assert {
            path.name: path.read_bytes() for path in here.iterdir() if path.name != ".remote.json"
        } == {path.name: path.read_bytes() for path in tiny_folder.iterdir()}
        with pytest.raises(ModelError, match="nothing is there"):
            local_model("memory://b/none")


class TestAddresses:
    @pytest.mark.parametrize("place", ["runs/x", "/runs/x", "C:\\x", "a:b", "://x", "s3:/x"])
    def test_everything_else_is_a_path(self, place):
        assert not is_address(place)

    def test_with_a_password_are_refused_and_it_is_not_repeated(self, recipe):
        with pytest.raises(RecipeError, match=r"ftp://\.\.\.@host/x") as error:
            run(recipe, "ftp://me:secret@host/x")
        assert "secret" not in str(error.value)

    @pytest.mark.parametrize(
        "address",
        """zip://x::file://{0}/a.zip zip://{0}/a.zip tar://x::file://{0}/a.zip reference://::file://{0}/a.zip
        simplecache://x filecache://x::file://{0} reference://x github://x dir://x dir://x::file://{0} generic://x
        jupyter://h/x data://x local:///x ftp://127.0.0.1:1/x webhdfs://127.0.0.1:1/x http://127.0.0.1:1/x
        http://127.0.0.1:99999/x http://[1/x http://[::1/x file://a\0b HTTP://x ::zip://x a+b://x""".split(),  # noqa: SIM905
    )
    def test_whatever_a_file_system_raises_is_one_error(self, address, place):
        (place / "a.zip").write_text("no archive")
        address = address.format(place)
        for read in (local_run, local_model) if is_address(address) else ():
            with pytest.raises(PlumblineError) as error:
                read(address)
            assert error.value.fix

    @pytest.mark.parametrize(
        ("module", "address"), [("fsspec.core", "memory://b/x"), ("s3fs", "s3a://b/x")]
    )
    def test_without_what_it_needs_names_the_extra(self, monkeypatch, module, address):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ModelError) as error:
            local_run(address)
        assert f"needs {module.partition('.')[0]}, " in error.value.cause
        assert ".[remote]" in error.value.fix


@pytest.fixture(scope="module")
def bucket():
    """A bucket of a local server that speaks S3."""
    pytest.importorskip("s3fs", reason="the extra remote is not installed")
    server_of = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patched.setenv("AWS_ACCESS_KEY_ID", "AKIAPLUMBLINE")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-test")
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket"
    server.stop()


def test_a_run_in_a_bucket(recipe, whole, bucket, place, monkeypatch):
    """Interrupted, gone on elsewhere, read; and no secret is in any record."""
    address = f"{bucket}/runs/x"
    interrupted(recipe, address, monkeypatch, after=2)
    store = Store(address)
    elsewhere(monkeypatch, place)
    folder = run(recipe, address, resume=True).folder
    mine = results(folder)
    assert {key for key in whole if mine.get(key) != whole[key]} == {"result.json"}
    assert whole_state(store).items() >= mine.items()
    assert (local_run(address) / "result.json").is_file()
    written = [path for path in place.rglob("*") if path.is_file()]
    assert not [path for path in written if b"the-secret-of-the-test" in path.read_bytes()]
    assert not [key for key in store.sizes() if b"the-secret-of-the-test" in store.read(key)]


def test_a_bucket_that_is_not_there_is_an_error(bucket, tmp_path):
    put(tmp_path / "metrics.jsonl", "{}")
    with pytest.raises(StorageError, match=r"nowhere/x: .*bucket"):
        Publisher(tmp_path, Store("s3://nowhere/x")).put()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_write_fails_a_reader_finds_a_whole_state(tmp_path_factory, data):
    """A folder changes, is published, and the store fails at any moment: manifests name what is
    there, and only that.

    The state that is read is one that the folder had, in all its files.
    """
    Faulty.store.clear()
    Faulty.pseudo_dirs[:] = [""]
    Faulty.fail = staticmethod(lambda what, path: None)
    folder = tmp_path_factory.mktemp("w") / "run"
    folder.mkdir()
    store = Store("faulty://b/x")
    write_json(folder / ".remote.json", {"address": store.address, "seen": []})
    publisher, had = Publisher(folder, store), []
    for number in range(data.draw(st.integers(1, 4))):
        change(folder, number, data.draw(st.integers(0, 7)))
        had.append(
            {
                path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in published_files(folder)
            }
        )
        fail_after(data.draw(st.integers(0, 12)))
        earlier = read_manifest(store)
        with suppress(StorageError):
            publisher.put()
        Faulty.fail = staticmethod(lambda what, path: None)
        assert whole_state(store) in [{}, *had]
        assert {
            storage_key(path, entry.sha256) for path, entry in earlier.items()
        } <= store.sizes().keys(), "somebody may still be reading it"
        if data.draw(st.booleans()):  # the process dies, and another takes up the folder
            publisher = Publisher(folder, store)
    publisher.put()
    assert whole_state(store) == had[-1]
    publisher.put()
    needed = {storage_key(path, entry.sha256) for path, entry in read_manifest(store).items()}
    assert store.sizes().keys() == {*needed, "run.json"}, "what nobody needs is removed"


def test_only_what_changed_is_sent(tmp_path):
    address, sent = "faulty://b/x", []
    Faulty.fail = staticmethod(lambda what, path: sent.append(path) if what == "write" else None)
    folder = tmp_path / "run"
    put(folder / "models" / "sft" / "model.safetensors", "weights")
    put(folder / "models" / "sft" / "plumbline.json", "{}")
    put(folder / "metrics.jsonl", "1")
    write_json(folder / ".remote.json", {"address": address, "seen": []})
    Publisher(folder, Store(address)).put()
    assert len(sent) == 5  # and run.json twice: the first says whose place this is
    sent.clear()
    put(folder / "metrics.jsonl", "2")
    Publisher(folder, Store(address)).put()
    assert [path.split("/")[-1].split(".")[0] for path in sent] == ["metrics", "run"]


def test_what_an_engine_serves_and_logs_is_not_published(tmp_path):
    put(tmp_path / "metrics.jsonl", "{}")
    put(tmp_path / "engine" / "served" / "model.safetensors", "weights")
    assert [path.name for path in published_files(tmp_path)] == ["metrics.jsonl"]


def change(folder: Path, number: int, what: int) -> None:
    """Let a folder change as a run changes it."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f"{number}\n" * (what + 1))
    put(folder / "recipe.yaml", f"name: x{what % 2}\n")
    if what % 2:
        for name in ("tensors.safetensors", "state.json"):
            put(folder / f"checkpoints/rl/step-00000{number}" / name, f"{name} {number}")
    if what == 6:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    if what > 5:
        for name in ("model.safetensors", "plumbline.json"):
            put(folder / "models" / f"m{number}" / name, f"{name} {number}")


def put(path: Path, text: str) -> None:
    """A new file in a file's place, as the package writes them, but not flushed to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").replace(path)


def fail_after(writes: int) -> None:
    """Let the store refuse all writes after so many."""
    left = [writes]

    def fail(what, path):
        if what == "write":
            left[0] -= 1
            if left[0] < 0:
                raise OSError("the store is gone")

    Faulty.fail = staticmethod(fail)
