"""The hub: whether it answers, and uploads, against servers of this machine that stand for it."""

import base64
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from safetensors.torch import save_file

from plumbline.errors import ModelError
from plumbline.runs import hub


@pytest.fixture
def listening():
    """A port on which connections are taken and nothing is answered."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        yield silent.getsockname()[1]


@pytest.fixture
def closed():
    """A port on which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def at(port, monkeypatch, place):
    """Make an address of this machine the hub, and an empty folder its cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(place))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")


@pytest.mark.parametrize(
    ("port", "adapter"), [("listening", False), ("closed", False), ("closed", True)]
)
def test_a_hub_that_does_not_answer_ends_a_command_within_seconds(port, adapter, request, tmp_path):
    number = request.getfixturevalue(port)
    model = str(tmp_path / "adapter") if adapter else "nowhere/model"
    if adapter:
        (tmp_path / "adapter").mkdir()
        config = {"base_model_name_or_path": "nowhere/model", "target_modules": ["q_proj"]}
        config |= {"peft_type": "LORA", "r": 8, "lora_alpha": 16}
        (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
        save_file({}, tmp_path / "adapter" / "adapter_model.safetensors")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        "HF_ENDPOINT": f"http://127.0.0.1:{number}",
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
    }
    command = [
        sys.executable,
        "-m",
        "plumbline",
        "eval",
        model,
        "--task",
        "forms",
        "--n",
        "2",
    ]
    began = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    took = time.monotonic() - began
    assert done.returncode == 1
    cause, fix = done.stderr.strip().splitlines()
    assert cause.startswith(
        f"error: nowhere/model is not on this machine, and the hub http://127.0.0.1:{number} does "
        "not answer ("
    )
    assert ("Connection refused" if port == "closed" else "no answer within 3 s") in cause
    assert "HTTPS_PROXY" in fix
    assert "HF_ENDPOINT" in fix
    assert took < 25, "the hub's client alone waits for 28 s between its attempts"


def test_the_hub_is_waited_for_less_than_five_seconds(listening, monkeypatch, tmp_path):
    at(listening, monkeypatch, tmp_path)
    began = time.monotonic()
    with pytest.raises(ModelError, match="org/model"):
        hub.check_hub("org/model", cached=hub.is_cached("org/model"))
    assert time.monotonic() - began < 5


def test_what_is_in_the_cache_is_used_without_the_hub(closed, monkeypatch, tmp_path, capsys):
    from huggingface_hub import is_offline_mode

    at(closed, monkeypatch, tmp_path)
    (tmp_path / "models--org--model" / "snapshots" / "abc").mkdir(parents=True)
    hub.check_hub("org/model", cached=hub.is_cached("org/model"))
    assert "org/model" in capsys.readouterr().err
    assert is_offline_mode()
    assert os.environ["HF_HUB_OFFLINE"] == "1"


# -- uploads ---------------------------------------------------------------------------------------


class StandIn(http.server.BaseHTTPRequestHandler):
    """The part of the hub's protocol that an upload uses, as its own client speaks it."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        server, path = self.server, self.path.partition("?")[0]
        if (
            self.headers.get("Authorization") != "Bearer hf_right"
            and path != "/"
            and not path.startswith("/lfs/")
        ):
            self.answer(401, {"error": "Invalid username or password."})
        elif path in {"/", "/api/whoami-v2"}:
            self.answer(200, {"name": "user", "type": "user", "auth": {"type": "access_token"}})
        elif path == "/api/repos/create":
            server.made.append(json.loads(body))
            self.answer(200, {"url": f"{server.address}/user/mine"})
        elif path == "/api/models/user/mine":
            self.answer(200, {"id": "user/mine", "private": server.private})
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif path == "/api/models/user/mine/preupload/main":
            names = [one["path"] for one in json.loads(body)["files"]]
            kinds = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            files = [
                {"path": name, "uploadMode": kind, "shouldIgnore": False}
                for name, kind in kinds.items()
            ]
            self.answer(200, {"files": files})
        elif path == "/user/mine.git/info/lfs/objects/batch":
            objects = json.loads(body)["objects"]
            for one in objects:
                one["actions"] = {
                    "upload": {"href": f"{server.address}/lfs/{one['oid']}", "header": {}}
                }
            self.answer(200, {"transfer": "basic", "objects": objects})
        elif path.startswith("/lfs/"):
            server.large[path.removeprefix("/lfs/")] = body
            self.answer(200)
        elif path == "/api/models/user/mine/commit/main":
            server.commits.append([json.loads(line) for line in body.splitlines()])
            done = {
                "success": True,
                "commitOid": "a" * 40,
                "commitUrl": f"{server.address}/user/mine/commit/{'a' * 40}",
            }
            self.answer(200, done)
        else:
            self.answer(404, {"error": f"not found: {path}"})

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """A server that stands for the hub, and knows one token."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.made, server.large, server.commits, server.private = [], {}, [], True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at(server.server_port, monkeypatch, tmp_path / "cache")
    # the server speaks the older protocol
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    yield server
    server.shutdown()


def test_an_export_is_uploaded_whole_to_a_private_repository(
    stand_in, tiny_folder, tmp_path, plumbline
):
    out = tmp_path / "out"
    code, said, err = plumbline("export", tiny_folder, "--out", out, "--push", "user/mine")
    assert code == 0, err
    assert said.splitlines()[-1] == f"uploaded to {stand_in.address}/user/mine"
    (made,) = stand_in.made
    assert (made["name"], made["organization"], made["visibility"]) == ("mine", "user", "private")
    ((_, *files),) = stand_in.commits
    small = {one["value"]["path"]: one["value"]["content"] for one in files if one["key"] == "file"}
    large = {one["value"]["path"]: one["value"]["oid"] for one in files if one["key"] == "lfsFile"}
    names = {path.name for path in out.iterdir()} - {".plumbline"}
    assert {*small, *large} == names
    assert base64.b64decode(small["README.md"]) == (out / "README.md").read_bytes()
    assert stand_in.large[large["model.safetensors"]] == (out / "model.safetensors").read_bytes()
    assert hub.Repository("user/mine", public=True).upload(out).endswith("/user/mine")
    assert stand_in.made[-1]["visibility"] == "public"
    stand_in.private = False
    with pytest.raises(ModelError, match=r"user/mine .*public"):
        hub.Repository("user/mine", public=False).upload(out)
    assert len(stand_in.commits) == 2


@pytest.mark.parametrize(
    ("name", "token", "said"),
    [
        ("user/mine", "hf_wrong", "the hub does not take the token"),
        ("user/mine", "", "there is no token for the hub"),
        ("mine", "hf_right", "--push is mine, which names no user"),
        ("user/mi ne", "hf_right", "--push is user/mi ne: "),
    ],
)
def test_what_cannot_be_uploaded_is_refused_before_anything_is_written(
    stand_in, tiny_folder, tmp_path, plumbline, monkeypatch, name, token, said
):
    monkeypatch.setenv("HF_TOKEN", token)
    code, _, err = plumbline("export", tiny_folder, "--out", tmp_path / "out", "--push", name)
    assert (code, stand_in.made) == (1, [])
    assert f"error: {said}" in err
    assert not (tmp_path / "out").exists()


def test_a_repository_is_opened_in_a_process_that_has_imported_nothing_else():
    """The hub's package has its parts only where something has imported them."""
    code = "from plumbline.runs.hub import Repository; Repository('user/mi ne', public=False)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "RecipeError: --push " in done.stderr


def test_an_upload_that_the_hub_refuses_leaves_the_export(
    stand_in, tiny_folder, tmp_path, plumbline
):
    code, _, err = plumbline(
        "export", tiny_folder, "--out", tmp_path / "out", "--push", "other/mine"
    )
    assert code == 1
    assert "error: cannot upload to other/mine: " in err
    assert str(tmp_path / "out") in err
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert plumbline("export", tiny_folder, "--out", tmp_path / "b", "--public")[0] == 1
