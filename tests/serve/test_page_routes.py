"""What the page asks beside /v1: files of fixed names, examples, verdicts; and what it refuses."""

import json
import threading

import pytest

pytest.importorskip("starlette")
pytest.importorskip("selectolax")

from starlette.testclient import TestClient

from plumbline.serve.app import application
from plumbline.serve.page import routes as page
from plumbline.serve.page.routes import AT_ONCE, to_json_value
from tests.serve.page_models import FORMS, trained_on_forms

HOSTILE = (
    "",
    "\0",
    "<img src=x onerror=alert(1)></script>",
    "Step 1: Type '</textarea><script>alert(1)</script>' into the 'x' field\n" * 300,
    "[" * 50_000,
    '{"action": [{"input": {"index": 1, "text": "\ud800"}}]}',
    "Step 1: " * 9_000,
    "NaN" + "9" * 5_000,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    several = {
        "one": {"name": "forms", "options": FORMS},
        "two": {"name": "forms", "options": {**FORMS, "seed": 9}},
    }
    sources = {
        "forms": trained_on_forms(folder / "forms"),
        "several": trained_on_forms(folder / "several", task="", options={}, tasks=several),
        "unbuilt": trained_on_forms(
            folder / "unbuilt", task="commerce", options={"job": "extraction"}
        ),
        "broken": trained_on_forms(folder / "broken", options={"nonsense": 1}),
        "foreign": trained_on_forms(folder / "foreign", task="tests.toy:open_toy", options={}),
        "elsewhere": "",
    }
    with TestClient(application([], routes=page.routes(sources))) as client:
        yield client


def listing(client, **query):
    return client.post("/try/examples", params=query)


def judged(client, text, example=None, **changes):
    shown = listing(client, model="forms").json()
    body = {
        "model": "forms",
        "task": "forms",
        "split": "test",
        "example": example or shown["examples"][0]["id"],
    }
    return client.post("/try/judge", json={**body, "text": text, **changes})


def test_files_have_fixed_names_and_forbid_what_is_not_theirs(client):
    for path in (*page.FILES, "/page/palette.css"):
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        # nothing from elsewhere
        assert "://" not in response.text.replace("http://www.w3.org/2000/svg", "")
        assert "<script>" not in response.text
        assert client.post(path).status_code == 405
    for path in (
        "/page/",
        "/page/routes.py",
        "/page/../routes.py",
        "/page/%2e%2e/routes.py",
        "/page/..%2froutes.py",
    ):
        assert client.get(path).status_code == 404


def test_examples_come_in_bounded_pages(client):
    first = listing(client, model="forms").json()
    assert first["tasks"] == ["forms"]
    assert first["split"] == "test"
    assert "held-out-forms" in first["splits"]
    train = listing(client, model="forms", split="train").json()
    assert len(train["examples"]) == AT_ONCE < train["total"]
    assert set(train["examples"][0]) == {"id", "messages", "gold", "stratum"}
    second = listing(client, model="forms", split="train", offset=AT_ONCE).json()
    ids = [one["id"] for part in (train, second) for one in part["examples"]]
    assert len(set(ids)) == 2 * AT_ONCE
    assert listing(client, model="forms", split="train", offset=10**8).json()["examples"] == []


def test_a_model_without_examples_says_why(client):
    for model, why in (
        ("elsewhere", "does not say which task"),
        ("unbuilt", "records of the task commerce are not here"),
        ("broken", "nonsense"),
    ):
        found = listing(client, model=model).json()
        assert found["examples"] == []
        assert why in found["why"]


def test_a_get_opens_nothing(client):
    fresh = {"model": "several", "task": "two", "split": "val"}
    for _ in range(2):
        found = client.get("/try/examples", params=fresh).json()
        assert (found["tasks"], found["splits"], found["examples"]) == (["one", "two"], [], [])
        assert "not opened yet" in found["why"]
    shown = listing(client, **fresh).json()
    assert shown["examples"]
    assert client.get("/try/examples", params=fresh).json() == shown
    assert (
        "not read yet"
        in client.get("/try/examples", params={**fresh, "split": "train"}).json()["why"]
    )


def test_code_that_a_card_names_is_not_run(client, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_TRUST_CODE", "")
    assert "--trust-code" in listing(client, model="foreign").json()["why"]
    body = {
        "model": "foreign",
        "task": "tests.toy:open_toy",
        "split": "test",
        "example": "x",
        "text": "x",
    }
    refused = client.post("/try/judge", json=body)
    assert (refused.status_code, "--trust-code" in refused.text) == (404, True)
    monkeypatch.setenv("PLUMBLINE_TRUST_CODE", "1")
    assert listing(client, model="foreign").json()["examples"]


def test_what_an_answer_says_is_told_where_the_task_can_tell(client, monkeypatch):
    from plumbline_forms.task import FormsTask

    assert judged(client, "x").json()["said"] == []
    monkeypatch.setattr(
        FormsTask,
        "canonicalise_answer",
        lambda *_: frozenset({("b", "2"), ("a", float("nan"))}),
        raising=False,
    )
    assert judged(client, "x").json()["said"] == [["a", "nan"], ["b", "2"]]
    monkeypatch.setattr(FormsTask, "canonicalise_answer", lambda *_: None)
    assert judged(client, "x").json()["said"] == []


def test_each_of_several_tasks_can_be_picked(client):
    one, two = (listing(client, model="several", task=name).json() for name in ("one", "two"))
    assert one["tasks"] == ["one", "two"]
    assert one["examples"] != two["examples"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"model": "nobody"}, 404),
        ({}, 404),
        ({"model": "forms", "split": "../train"}, 404),
        ({"model": "forms", "task": "commerce"}, 404),
        ({"model": "elsewhere", "task": "forms"}, 200),
        ({"model": "forms", "offset": "-1"}, 400),
        ({"model": "forms", "offset": "9" * 5000}, 400),
        ({"model": "forms", "offset": "²"}, 400),
    ],
)
def test_a_wrong_question_is_refused(client, query, status):
    response = listing(client, **query)
    assert response.status_code == status
    assert status == 200 or response.json()["error"]["message"]


def test_the_gold_answer_is_worth_everything_and_fills_the_form(client):
    one = listing(client, model="forms").json()["examples"][0]
    found = judged(client, one["gold"]).json()
    assert found["score"] == 1.0
    assert found["failure"] == ""
    assert found["ceiling"]["score"] == 1.0
    assert 0 <= found["floor"]["score"] < 1
    assert found["floor"]["n"] == found["ceiling"]["n"] > 0
    assert set(found["floor"]["parts"]) <= set(found["parts"])
    received = {str(value) for values in found["facts"]["received"].values() for value in values}
    assert received
    assert all(value in "".join(found["pages"]) for value in received if value)
    nothing = judged(client, "no idea").json()
    assert nothing["score"] < 1
    assert nothing["how"] == "none"
    assert nothing["facts"]["received"] == {}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_judged_like_others(client, text):
    body = {"model": "forms", "task": "forms", "split": "test", "text": text}
    body["example"] = listing(client, model="forms").json()["examples"][0]["id"]
    content = json.dumps(body)  # in ASCII: half a surrogate pair goes through, too
    response = client.post(
        "/try/judge", content=content, headers={"content-type": "application/json"}
    )
    assert response.status_code == 200
    found = response.json()
    assert found["score"] is not None
    assert not any("<script" in shown or "<img" in shown for shown in found["pages"])


def test_what_is_no_question_is_refused(client):
    assert judged(client, "x" * (page.LONGEST + 1)).status_code == 413
    assert judged(client, 7).status_code == 400
    assert judged(client, "x", example="nothing").status_code == 404
    half = b'{"model": "\\ud800", "task": "", "split": "", "example": "\\ud800", "text": ""}'
    assert (
        client.post(
            "/try/judge", content=half, headers={"content-type": "application/json"}
        ).status_code
        == 404
    )
    assert judged(client, "x", split="../train").status_code == 404
    assert judged(client, "x", task="other").status_code == 404
    assert judged(client, "x", model="elsewhere").status_code == 404
    for body, kind, status in (
        (b"{", "application/json", 400),
        (b"[1]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"{}", "text/plain", 415),  # what a page from elsewhere could send without asking
        (b" " * (page.LIMITS.body + 1), "application/json", 413),
    ):
        assert (
            client.post("/try/judge", content=body, headers={"content-type": kind}).status_code
            == status
        )


def test_a_verdict_that_takes_too_long_is_not_waited_for(client, monkeypatch):
    monkeypatch.setattr(page, "SECONDS", 0.2)
    monkeypatch.setattr(page, "WAITING", 2)
    free = threading.Event()
    trials = page.Trials({})
    monkeypatch.setattr(trials, "list_examples", lambda *_, **__: free.wait(20) and None)
    monkeypatch.setattr(page, "Trials", lambda _: trials)
    with TestClient(application([], routes=page.routes({}))) as slow:
        said = [slow.get("/try/examples") for _ in range(3)]
        assert [one.status_code for one in said] == [503] * 3
        assert "too many" in said[2].json()["error"]["message"]
        free.set()
        for _ in range(100):
            if (again := slow.get("/try/examples")).status_code == 200:
                break
        assert again.status_code == 200


def test_facts_of_any_kind_become_plain():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    found = to_json_value(
        {
            "a": float("nan"),
            1: {2},
            "b": deep,
            "c": [0] * 1000,
            "d": 10**9000,
            "e": object,
            "f": None,
        }
    )
    assert found["a"] == "nan"
    assert found["1"] == [2]
    assert found["c"] == "(1000 entries)"
    assert str(found["b"]).count("[") < 10
    assert found["d"].startswith("(a number")
    assert found["f"] is None
