"""The site: pages, checks, everything that was received; in process and behind a real socket."""

import http.client
import itertools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from environments.forms.tests.small import ordered_form, small_form
from plumbline_forms.executors.direct import FormEntry, encode
from plumbline_forms.executors.page import parse_page
from plumbline_forms.site import serve as serving
from plumbline_forms.site import site as site_module
from plumbline_forms.site.page import FormView, render_page
from plumbline_forms.site.serve import REFUSED, listen, serve
from plumbline_forms.site.site import (
    MAX_BODY,
    MAX_RECEIPTS,
    Site,
    SiteError,
    check_page,
    read_body,
    submission_of,
)
from plumbline_forms.suite.catalogue import FORMS

URLENCODED = "application/x-www-form-urlencoded"


def check(form, entries, files=None):
    given = {"token": ("t-1",), "size": ("s",)} | {
        name: (value,) for name, value in entries.items()
    }
    return check_page(form, form.pages[0], given, files or {})


@pytest.mark.parametrize("name", FORMS)
def test_a_page_says_everything_that_the_declaration_says(name):
    form = FORMS[name]
    for stars in (False, True):
        view = FormView(form, stars=stars)
        for number, page in enumerate(form.pages, 1):
            html = render_page(view, number)
            assert (
                "http" not in html.replace("https://", "").replace("http-equiv", "")
                or "src=" not in html
            )
            assert "src=" not in html
            assert "href=" not in html
            model = parse_page(html.encode())
            assert model.language == form.language
            assert {one.name for one in model.controls if one.kind != "button"} == {
                one.name for one in page.fields
            }
            for control in model.controls:
                if control.kind in {"button", "hidden"}:
                    continue
                one = form.by_name[control.name]
                grouped = one.kind in {"radio", "checkboxes"}
                label = control.group if grouped else control.label or one.label
                assert (
                    label == one.label + (" *" if stars and one.required else "")
                    or one.named_by == "name"
                )
                assert not grouped or control.label in {option.text for option in one.options}
                wanted = one.required and one.kind not in {"checkboxes"}
                assert ("required" in control.attributes) == wanted
            fresh = {control.name for control in model.controls if control.conditions}
            assert fresh == {one.name for one in page.fields if one.shown_if}


def test_hostile_declarations_and_entries_are_escaped():
    form = small_form()
    html = render_page(
        FormView(form),
        1,
        {"name": ('"><script>alert(1)</script>',), "notes": ("</textarea><b>",)},
        {},
    )
    assert "<script>alert" not in html
    assert "</textarea><b>" not in html
    assert "Small &lt;form&gt; &amp; co" in html
    (name,) = [one for one in parse_page(html.encode()).controls if one.name == "name"]
    assert name.value == '"><script>alert(1)</script>'


RIGHT = [
    ("name", "😀" * 5),
    ("notes", "a\r\nb"),
    ("code", "A1"),
    ("mail", "a@b"),
    ("site", "https://x.org/"),
]
RIGHT += [("count", "4"), ("count", "1e1"), ("colour", "")]
WRONG = [
    ("name", "x" * 11),
    ("name", "😀" * 6),
    ("name", "a\nb"),
    ("code", "A12"),
    ("mail", "a b"),
    ("site", "x.org"),
]
WRONG += [
    ("count", "5"),
    ("count", "12"),
    ("count", "four"),
    ("count", "9" * 5000),
    ("start", "2019-12-31"),
]
WRONG += [
    ("start", "2020-02-30"),
    ("hour", "25:00"),
    ("colour", "x"),
    ("size", "xl"),
    ("news", "yes"),
]
WRONG += [("why", "because"), ("token", "t-2"), ("unknown", "x"), ("cv", "cv.pdf")]


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        *(({name: value}, set()) for name, value in RIGHT),
        *(({name: value}, {name}) for name, value in WRONG),
        *(({}, set()), ({"news": "on"}, {"why"}), ({"news": "on", "why": "because"}, set())),
    ],
)
def test_what_the_server_accepts(entries, wrong):
    assert set(check(small_form(), entries)) == wrong


def test_files_multiple_values_and_rules():
    form = ordered_form()
    assert not check(form, {}, {"cv": ("CV.PDF",), "pics": ("a.png", "b.pdf")})
    assert set(check(form, {}, {"cv": ("a.pdf", "b.pdf")})) == {"cv"}
    assert set(check(form, {}, {"cv": ("a.exe",), "name": ("x.pdf",)})) == {"cv", "name"}
    assert set(check(form, {"start": "2026-02-02", "end": "2026-02-01"})) == {"end"}
    assert not check(form, {"start": "2026-02-02", "end": "2026-02-02"})
    given = {"token": ("t-1",), "days": ("mo", "mo"), "langs": ("en", "pt"), "colour": ("r", "b")}
    assert set(check_page(form, form.pages[0], given, {})) == {"days", "colour"}


def test_errors_are_shown_with_what_was_entered_and_the_next_try_is_kept_too():
    site = Site()
    view = FormView(small_form())
    episode = site.open(view)
    path = site.address(episode, view)
    bad = urlencode(
        [
            ("token", "t-1"),
            ("size", "l"),
            ("name", "Ann"),
            ("count", "5"),
            ("days", "mo"),
            ("days", "we"),
        ]
    )
    response = site.handle("POST", path, URLENCODED, bad.encode())
    assert response.status == 422
    model = parse_page(response.body)
    assert "out of range" in model.text
    assert [one.value for one in model.controls if one.name == "name"] == ["Ann"]
    assert [one.checked for one in model.controls if one.name == "days"] == [True, False, True]
    good = site.handle("POST", path, URLENCODED, bad.replace("count=5", "count=6").encode())
    assert good.status == 303
    assert "successfully submitted" in site.handle("GET", good.headers["location"]).body.decode()
    receipts = site.close(episode)
    assert [one.number for one in receipts] == [1, 2]
    assert set(receipts[0].errors) == {"count"}
    assert submission_of(receipts).entries["days"] == ("mo", "we")
    assert site.handle("GET", path).status == 404, "a closed episode is gone"


def test_a_wizard_goes_page_by_page_and_is_complete_at_its_end():
    site, view = Site(), FormView(FORMS["exchange-nomination"])
    episode = site.open(view)
    path = site.address(episode, view)
    assert site.handle("GET", path + "/3").headers["location"] == path
    late = site.handle(
        "POST", path + "/2", URLENCODED, b"host_university=corvale&current_average=8"
    )
    assert late.status == 303
    assert submission_of(site.receipts(episode)) is None
    first = urlencode(
        {
            "student_name": "A",
            "student_email": "a@b",
            "birth_date": "2001-01-01",
            "passport_number": "A1234567",
        }
    )
    assert site.handle("POST", path, URLENCODED, first.encode()).headers["location"] == path + "/2"
    assert "Page 2 of 3" in site.handle("GET", path + "/2").body.decode()
    second = (
        b"host_university=corvale&study_field=&current_average=8&languages=english&languages=german"
    )
    assert site.handle("POST", path + "/2", URLENCODED, second).headers["location"] == path + "/3"
    third = [
        *(
            FormEntry(n, v)
            for n, v in (
                ("arrival", "2026-09-01"),
                ("departure", "2026-12-20"),
                ("housing", "dormitory"),
            )
        ),
        FormEntry("transcript", "t.pdf", is_file=True),
    ]
    done = site.handle("POST", path + "/3", *encode(third, "multipart/form-data"))
    assert done.headers["location"] == path + "/received"
    found = submission_of(site.close(episode))
    assert found.entries["student_name"] == ("A",)
    assert found.entries["languages"] == ("english", "german")
    assert found.files == {"transcript": ("t.pdf",)}


def test_the_first_complete_form_counts():
    site, view = Site(), FormView(small_form())
    episode = site.open(view)
    for name in ("first", "second"):
        body = urlencode({"token": "t-1", "size": "s", "name": name}).encode()
        assert site.handle("POST", site.address(episode, view), URLENCODED, body).status == 303
    receipts = site.close(episode)
    assert len(receipts) == 2
    assert submission_of(receipts).entries["name"] == ("first",)


def test_limits_and_strange_requests():
    site, view = Site(), FormView(small_form())
    episode = site.open(view)
    path = site.address(episode, view)
    for strange in (
        "/",
        "/e/",
        "/e/x/test/small",
        "/e/" + episode,
        *(path + end for end in ("/0", "/2", "/x", "/1/2")),
    ):
        assert site.handle("GET", strange).status == 404, strange
    assert site.handle("PUT", path).status == 405
    assert site.handle("POST", path, "text/plain", b"x").status == 400
    assert site.handle("POST", path, "multipart/form-data", b"x").status == 400
    assert site.handle("POST", path, "multipart/form-data; boundary=b", b"--b\r\nx").status == 400
    assert site.handle("POST", path, URLENCODED, b"x" * (MAX_BODY + 1)).status == 413
    assert (
        site.handle("POST", path, URLENCODED, b"&".join(b"a=1" for _ in range(600))).status == 400
    )
    for _ in range(MAX_RECEIPTS):
        assert site.handle("POST", path, URLENCODED, b"name=x").status == 422
    assert site.handle("POST", path, URLENCODED, b"name=x").status == 429
    assert len(site.close(episode)) == MAX_RECEIPTS


def test_too_many_open_episodes_are_an_error(monkeypatch):
    monkeypatch.setattr(site_module, "MAX_EPISODES", 2)
    site, view = Site(), FormView(small_form())
    first, _ = site.open(view), site.open(view)
    with pytest.raises(SiteError, match="close episodes"):
        site.open(view)
    site.close(first)
    site.open(view)


def test_a_body_survives_its_encoding():
    odd = [
        FormEntry("a", "x\ny & z=1+2~é€😀"),
        FormEntry("a", ""),
        FormEntry('q"\n', "----PlumblineFormBoundary"),
        FormEntry("f", 'ü".pdf', True),
    ]
    for multipart in (True, False):
        sent = odd if multipart else odd[:3]
        entries, files = read_body(*encode(sent, "multipart/form-data" if multipart else ""))
        wanted = [
            (
                one.name.replace("\n", "\r\n" if not multipart else "\n"),
                one.value.replace("\n", "\r\n"),
            )
            for one in odd[:3]
        ]
        assert entries == [*wanted[:2], (odd[2].name, odd[2].value)]
        assert files == ([("f", 'ü".pdf')] if multipart else [])
    assert read_body(*encode([FormEntry("f", "", True)], "multipart/form-data")) == ([], [])


def post(address, path, body):
    host = address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=20)
    try:
        connection.request("POST", path, body, {"content-type": URLENCODED})
        return connection.getresponse().status
    finally:
        connection.close()


def test_64_submissions_at_once_lose_nothing():
    site, view = Site(), FormView(small_form())
    with serve(site) as address:
        assert int(address.rpartition(":")[2]) not in REFUSED
        episodes = [site.open(view) for _ in range(8)]
        bodies = [
            (
                episode,
                urlencode(
                    [
                        ("token", "t-1"),
                        ("size", "s"),
                        ("name", f"n{number}"),
                        ("days", "mo"),
                        ("days", "tu"),
                    ]
                ),
            )
            for episode, number in itertools.product(episodes, range(8))
        ]
        with ThreadPoolExecutor(64) as pool:
            codes = list(
                pool.map(lambda one: post(address, site.address(one[0], view), one[1]), bodies)
            )
        assert codes == [303] * 64
        for episode in episodes:
            receipts = site.close(episode)
            assert {one.entries["name"] for one in receipts} == {
                (f"n{number}",) for number in range(8)
            }
            assert [one.number for one in receipts] == list(range(1, 9))
            assert all(one.entries["days"] == ("mo", "tu") for one in receipts)
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b"ok"
        connection.close()
    with pytest.raises(ConnectionError):
        post(address, "/", "")


def test_hundreds_of_requests_leave_nothing_behind():
    site, view = Site(), FormView(small_form())
    body = urlencode({"token": "t-1", "size": "s", "name": "x"}).encode()
    kept = None
    for round_ in range(3):
        for _ in range(5):
            episode = site.open(view)
            path = site.address(episode, view)
            for _ in range(38):
                site.handle("GET", path)
            site.handle("POST", path, URLENCODED, body)
            site.handle("GET", path + "/received")
            assert len(site.close(episode)) == 1
        threads = threading.active_count()
        kept = kept or threads
        assert threads == kept
        assert not site._episodes, round_


def test_a_port_in_use_or_refused_is_a_clear_error(monkeypatch):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(SiteError, match=f"{port}.*in use"), serve(Site(), port):
            pass
    for port in (5060, 5061, 6000):
        with pytest.raises(SiteError, match=f"browsers .* {port}"):
            listen(port)
    with pytest.raises(SiteError, match="cannot serve"):
        listen(70000)
    monkeypatch.setattr(serving, "REFUSED", frozenset(range(1, 65536)))
    with pytest.raises(SiteError, match="every free port"):
        listen(0)
