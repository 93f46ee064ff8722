"""The app behind the site: what it is sent is kept whole, for the episode that sent it, and nothing
leads elsewhere."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from plumbline_browser.plans.actions import Attach, Check, Plan, Select, Submit, Type
from plumbline_forms.executors.direct import DirectExecutor, FormEntry, encode
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.executors.page import parse_page
from plumbline_forms.formfactory.hosting import HostedForms, local_page
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import MAX_RECEIPTS, Response, Site


@pytest.fixture
def site(task):
    return Site(task.suite.application)


def visit(task, site, name, *actions, files=frozenset()):
    (result,) = DirectExecutor(site).run(
        FormCase(FormView(task.forms[name]), files), [Plan((*actions, Submit()))]
    )
    return result


def post(site, view, entries, *, multipart=False):
    episode = site.open(view)
    response = site.handle(
        "POST",
        site.address(episode, view),
        *encode(entries, "multipart/form-data" if multipart else ""),
    )
    return response, site.close(episode)


def test_every_value_of_a_name_is_kept(task, site):
    group = "Select Courses"
    result = visit(
        task, site, "course-registration", Check(group, "K3 - Kilns"), Check(group, "K1 - Knots")
    )
    (receipt,) = result.receipts
    assert receipt.entries["courses[]"] == ("K1", "K3")
    assert receipt.complete
    assert "Submitted Successfully" in result.text


def test_a_list_is_found_by_the_heading_above_it(task, site):
    result = visit(task, site, "account-opening", Select("Account Type", "Student Account"))
    assert result.receipts[0].entries == {"fullName": ("",), "accountType": ("student",)}


def test_names_of_files_are_kept_in_both_encodings(task, site):
    booked = visit(
        task,
        site,
        "workshop-registration",
        Attach("Programme", "a.pdf"),
        files=frozenset({"a.pdf"}),
    )
    assert booked.receipts[0].files == {"programme": ("a.pdf",)}
    assert "programme" not in booked.receipts[0].entries
    filled = (Type("Policy Number", "P-9"), Attach("Bills", "b.pdf"))
    claimed = visit(task, site, "insurance-claim", *filled, files=frozenset({"b.pdf"}))
    assert claimed.receipts[0].files == {"bills": ("b.pdf",)}
    assert claimed.receipts[0].entries == {"policy": ("P-9",)}


def test_a_required_file_is_what_it_is(task, site):
    result = visit(task, site, "insurance-claim", Type("Policy Number", "P-9"))
    assert result.receipts == ()
    assert "missing" in result.attempts[-1].reason


def test_a_box_is_on_whatever_its_value(task, site):
    result = visit(task, site, "workshop-registration", Check("I agree"))
    assert result.receipts[0].entries["ok"] == ("on",)


def test_an_app_that_fails_has_not_taken_the_form(task, site):
    result = visit(task, site, "workshop-registration", Type("Organization", "crash"))
    (receipt,) = result.receipts
    assert receipt.entries["organization"] == ("crash",)
    assert receipt.errors == {"": "the app answered 500"}
    assert not receipt.complete


def test_a_reply_is_text_and_no_page(task, site):
    """What was typed comes back in it; a form in that text is none."""
    result = visit(
        task,
        site,
        "account-opening",
        Type("Full Name", "<form><button>again</button></form>"),
        Submit(),
    )
    assert len(result.receipts) == 1
    assert result.attempts[-1].status == "not found"
    assert "<button>again" in result.text


def test_parallel_submissions_lose_nothing(task, site):
    view = FormView(task.forms["course-registration"])
    episodes = [site.open(view) for _ in range(64)]

    def send(number):
        entries = [
            FormEntry("name", f"N {number}"),
            FormEntry("courses[]", "K1"),
            FormEntry("courses[]", f"x{number}"),
        ]
        kind, body = encode(entries, "multipart/form-data" if number % 2 else "")
        return site.handle("POST", site.address(episodes[number], view), kind, body).status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(send, range(64))) == {200}
    for number, episode in enumerate(episodes):
        (receipt,) = site.close(episode)
        assert receipt.entries == {"name": (f"N {number}",), "courses[]": ("K1", f"x{number}")}


def test_limits_hold_here_too(task, site):
    view = FormView(task.forms["account-opening"])
    episode = site.open(view)
    kind, body = encode([FormEntry("fullName", "A")])
    sent = [
        site.handle("POST", site.address(episode, view), kind, body).status
        for _ in range(MAX_RECEIPTS + 1)
    ]
    assert sent == [200] * MAX_RECEIPTS + [429]
    assert len(site.close(episode)) == MAX_RECEIPTS


@pytest.mark.parametrize("rest", ["/2", "/received", "/1/x"])
def test_a_form_has_one_page(task, site, rest):
    view = FormView(task.forms["account-opening"])
    address = site.address(site.open(view), view)
    assert site.handle("GET", address).status == 200
    assert site.handle("GET", address + rest).status == 404


def test_outside_of_episodes_there_is_nothing_of_the_app(site):
    for path in (
        "/",
        "/form-config",
        "/finance-banking/account-opening",
        "/static/nothing.js",
        "/static/../app.py",
    ):
        assert site.handle("GET", path).status == 404, path
    assert site.handle("POST", "/finance-banking/account-opening").status == 404


def test_no_page_names_another_place(task, site):
    for form in task.forms.values():
        view = FormView(form)
        response = site.handle("GET", site.address(site.open(view), view))
        assert b"cdn.example.org" not in response.body
        assert b"action=" not in response.body
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "http" not in policy


def test_only_what_leads_elsewhere_is_changed(layout):
    here = (
        '<link href="/static/a.css"><script src="b.js"></script><script>let c = '
        '"https://d"</script>'
    )
    assert local_page(here, "/x") == here
    page = (layout / "templates" / "D12.html").read_text()
    assert local_page(page, "/tech-software/support-request") == page
    kept = '<form method="POST" action="/elsewhere">'
    assert local_page(kept, "/x") == kept


def test_a_form_that_a_script_builds_is_ported(task, site):
    view = FormView(task.forms["grant-application"])
    page = parse_page(site.handle("GET", site.address(site.open(view), view)).body)
    assert ", ".join(f"{one.kind} {one.name} {one.label}" for one in page.controls) == (
        "hidden page_type , text who Gardener, text mail Mail, text since Since, radio plot North, "
        "radio plot South, "
        "checkbox water Water needed, button  Apply now"
    )
    assert view.form.title == "Garden Grant"
    result = visit(task, site, "grant-application", Type("Mail", "x"), Select("Plot", "South"))
    assert result.receipts[0].entries["plot"] == ("South",)
    assert result.receipts[0].entries["page_type"] == ("Garden Grant",)


def test_a_redirect_is_a_form_taken(task):
    def ask(path, **request):
        return Response(302, b"moved", {"content-type": "text/html"}), {"fullName": ("A",)}, {}

    view = FormView(task.forms["account-opening"])
    taken = HostedForms(ask, {}).take(view, "", b"")
    assert taken.refused == ""
    assert (taken.response.status, taken.response.body) == (200, b"moved")
    assert "location" not in taken.response.headers
