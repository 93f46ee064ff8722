"""What the direct executor does with every action: the semantics of a user at a browser, one by
one."""

import pytest

from environments.forms.tests.differential import Pages
from environments.forms.tests.pages import CASES, carry_out
from environments.forms.tests.small import ANY, form_of, ordered_form, small_form, visit
from plumbline_browser.plans.actions import (
    Attach,
    Check,
    Click,
    Done,
    Navigate,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.executors.direct import DirectExecutor, Visit
from plumbline_forms.executors.executor import STEPS, FormCase
from plumbline_forms.executors.operations import find
from plumbline_forms.executors.page import parse_page
from plumbline_forms.site.page import FormView, render_page
from plumbline_forms.site.site import Site
from plumbline_forms.suite.catalogue import (
    FORMS,
    consent,
    file,
    is_shown,
    number,
    radio,
    select,
    text,
)
from plumbline_forms.values import read_date, read_number, read_time, typed
from tests.work import most_work, work


def test_an_untouched_form_sends_what_a_browser_would():
    result, arrived = visit(small_form())
    assert [one.status for one in result.attempts] == ["ok"]
    blank = " ".join(name for name, values in arrived.items() if values == ("",))
    assert blank == "name code long_word notes mail phone site count start end hour secret colour"
    assert (arrived["token"], arrived["size"], len(arrived)) == (("t-1",), ("s",), 15), (
        "boxes, radios, empty lists and empty files are absent; a list without a blank sends its "
        "first option"
    )
    assert "successfully submitted" in result.text


@pytest.mark.parametrize("view", [FormView(form) for form in FORMS.values()], ids=list(FORMS))
def test_untouched_is_what_the_declaration_says(view):
    """The rubric's idea of an untouched page and the page's own are the same."""
    for number_, page in enumerate(view.form.pages, 1):
        visited = Visit(parse_page(render_page(view, number_).encode()))
        sent = {}
        for entry in visited.entries():
            if not entry.is_file:
                sent.setdefault(entry.name, []).append(entry.value)
        for one in page.fields:
            wanted = view.untouched(one) if is_shown(one, {}) else ()
            assert tuple(sent.get(one.name, ())) == wanted, one.name


@pytest.mark.parametrize(
    ("action", "name", "got"),
    [
        (Type("Name", "Ann"), "name", ("Ann",)),
        (Type("Name", "0123456789abc"), "name", ("0123456789",)),
        (Type("Name", "😀😀😀😀😀😀"), "name", ("😀" * 5,)),
        (Type("Name", "012345678😀"), "name", ("012345678",)),
        (Type("Name", "a\nb\r\nc"), "name", ("a b c",)),
        (Type("Name", "a\x00b\x07"), "name", ("ab",)),
        (Type("Notes", "a\nb"), "notes", ("a\r\nb",)),
        (Type("Notes", "a\n" * 8), "notes", ("a\r\n" * 6,)),
        (Type("Email", "  a@b.org "), "mail", ("a@b.org",)),
        (Type("Site", " https://x.org "), "site", ("https://x.org",)),
        (Type("Count", "4"), "count", ("4",)),
        (Type("Count", " 4 "), "count", ("4",)),
        (Type("Start", "2026-03-04"), "start", ("2026-03-04",)),
        (Type("Start", "March 4, 2026"), "start", ("2026-03-04",)),
        (Type("Start", "03/04/2026"), "start", ("2026-03-04",)),
        (Type("Hour", "2:30 pm"), "hour", ("14:30",)),
        (Type("Secret", " p'w\"&+ "), "secret", (" p'w\"&+ ",)),
        (Select("Colour", "Dark blue"), "colour", ("b",)),
        (Select("Colour", "dark BLUE "), "colour", ("b",)),
        (Select("Colour", "Dark-blue"), "colour", ("b",)),
        (Select("Colour", "g"), "colour", ("g",)),
        (Select("Size", "Large"), "size", ("l",)),
        (Select("Languages", "German"), "langs", ("de",)),
        (Select("Way", "Pick up"), "way", ("pick_up",)),
        (Check("Pick up"), "way", ("pick_up",)),
        (Click("Post"), "way", ("post",)),
        (Check("News"), "news", ("on",)),
        (Check("News", "Yes"), "news", ("on",)),
        (Check("Days", "Monday"), "days", ("mo",)),
        (Select("Days", "tu"), "days", ("tu",)),
        (Check("Wednesday"), "days", ("we",)),
        (Attach("CV", "cv.pdf"), "cv", ("cv.pdf",)),
        (Attach("CV", "/home/me/cv.pdf"), "cv", ("cv.pdf",)),
        (Type("  name * ", "x"), "name", ("x",)),
        (Type("long", "word"), "long_word", ("word",)),
        (Type("phone", "5"), "phone", ("5",)),
        (Type("LONG_WORD", "word"), "long_word", ("word",)),
    ],
)
def test_one_action(action, name, got):
    follow = (Type("Why news", "x"),) if name == "news" else ()
    result, arrived = visit(small_form(), action, *follow)
    assert [one.status for one in result.attempts] == ["ok"] * len(result.attempts), result.attempts
    assert arrived[name] == got


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        *((Type(label, "x"), "not found") for label in ("Nowhere", "token", "")),
        *((Attach("CV", file), "not found") for file in ("/etc/passwd", "")),
        *((action, "not found") for action in (Select("Colour", "Pink"), Check("Days", "Sunday"))),
        *((action, "not found") for action in (Click("Nowhere"), Submit("Cancel"))),
        *(
            (action, "refused")
            for action in (Type("Colour", "Red"), Type("News", "Yes"), Type("CV", "cv.pdf"))
        ),
        *(
            (action, "refused")
            for action in (Type("Way", "Post"), Type("Count", "many"), Type("Start", "someday"))
        ),
        *(
            (action, "refused")
            for action in (Type("Start", "2026-02-30"), Type("Why news", "x"), Press("F5"))
        ),
        *(
            (action, "refused")
            for action in (Type("Name", "x" * 20000), Select("Name", "Ann"), Select("News", "Yes"))
        ),
        *((action, "refused") for action in (Check("Days"), Check("Name"), Uncheck("Way", "Post"))),
        (Attach("Name", "cv.pdf"), "refused"),
        *(
            (Navigate(url), "refused")
            for url in ("https://example.com/", "http://127.0.0.1:5050/other/form")
        ),
        *((Navigate(url), "refused") for url in ("file:///etc/passwd", "http://[bad/")),
        *(
            (action, "ok")
            for action in (Check("Colour", "Red"), Click("Name", "field"), Press("Tab"))
        ),
        (Navigate("/test/small"), "ok"),
    ],
)
def test_what_cannot_be_done_says_so_and_the_plan_goes_on(action, wanted):
    result, arrived = visit(small_form(), action, Type("Email", "a@b"))
    assert result.attempts[0].status == wanted, result.attempts[0]
    assert bool(result.attempts[0].reason) == (wanted != "ok")
    assert arrived["mail"] == ("a@b",)


def test_state_is_kept_as_a_browser_keeps_it():
    form = small_form()
    _, arrived = visit(
        form,
        *(Type("Name", "a"), Type("Name", "b"), Type("Name", "c", clear=False)),
        *(Select("Way", "Post"), Select("Way", "Pick up")),
        *(Check("Monday"), Check("Days", "Wednesday"), Uncheck("Days", "Monday"), Click("Tuesday")),
        *(
            Select("Languages", "German"),
            Select("Languages", "English"),
            Uncheck("Languages", "German"),
        ),
        *(
            Attach("CV", "cv.pdf"),
            Attach("CV", "b.pdf"),
            Attach("Pictures", "photo.png"),
            Attach("Pictures", "b.pdf"),
        ),
        *(Select("Colour", "Red"), Select("Colour", "-")),
    )
    assert arrived["name"] == ("bc",)
    assert arrived["way"] == ("pick_up",)
    assert arrived["days"] == ("tu", "we")
    assert arrived["langs"] == ("en",)
    assert arrived["cv"] == ("b.pdf",)
    assert arrived["pics"] == ("photo.png", "b.pdf")
    assert arrived["colour"] == ("",)


def test_conditional_fields_are_sent_only_while_they_are_shown():
    form = small_form()
    _, arrived = visit(form, Check("News"), Type("Why news", "cats"))
    assert arrived["why"] == ("cats",)
    _, arrived = visit(form, Check("News"), Type("Why news", "cats"), Uncheck("News"))
    assert "why" not in arrived
    _, arrived = visit(form, Check("News"), Type("Why news", "cats"), Click("News"), Click("News"))
    assert arrived["why"] == ("cats",), "what was typed is still there"
    result, arrived = visit(form, Check("News"))
    assert arrived is None, "it is required while it is shown"
    assert "Why news" in result.attempts[-1].reason


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("Code", "A1", "11"),
        ("Long word", "four", "one"),
        ("Email", "a@b", "a@"),
        ("Site", "a:b", "example.org"),
        ("Count", "4", "5"),
        ("Count", "10", "11"),
        ("Start", "2020-01-01", "2019-12-31"),
    ],
)
def test_a_browser_would_not_send_what_breaks_a_constraint(field, good, bad):
    assert visit(small_form(), Type(field, good))[1] is not None
    result, arrived = visit(small_form(), Type(field, bad))
    assert arrived is None
    assert result.attempts[-1].status == "refused"
    assert field in result.attempts[-1].reason
    assert visit(small_form(), Type(field, bad), Submit(), Type(field, good))[1] is not None, (
        "and it can be put right"
    )


def test_required_controls_of_every_kind_block():
    form = FORMS["film-permit"]
    result, arrived = visit(form)
    assert arrived is None
    assert "Production title" in result.attempts[0].reason
    fields = {
        "Ok": (consent("Ok"), Check("Ok")),
        "Way": (radio("Way", "A|B", required=True), Select("Way", "A")),
        "Colour": (select("Colour", "A|B", required=True), Select("Colour", "A")),
        "CV": (file("CV", ANY, required=True), Attach("CV", "cv.pdf")),
        "Name": (text("Name", ANY, required=True), Type("Name", "x")),
    }
    for field, action in fields.values():
        form = form_of(field)
        assert visit(form)[1] is None
        assert visit(form, action)[1] is not None
    assert visit(form_of(fields["Name"][0]), Type("Name", " "))[1]


def test_keys_send_or_break_lines():
    form = small_form()
    result, arrived = visit(form, Type("Name", "x"), Press("Enter"), submit=False)
    assert arrived["name"] == ("x",)
    assert len(result.receipts) == 1
    _, arrived = visit(form, Type("Notes", "x"), Press("Enter"))
    assert arrived["notes"] == ("x\r\n",)
    assert visit(form, Press("Enter"), submit=False)[1] is None, "nothing has the focus"
    assert visit(form, Select("Colour", "Red"), Press("Enter"), submit=False)[1] is None


@pytest.mark.parametrize("label", ["", "Submit", "Go!", "go", "Submit form", "Enviar"])
def test_the_button_by_any_of_its_names(label):
    assert visit(small_form(), Submit(label), submit=False)[1] is not None


def test_after_sending_there_is_nothing_to_type_into():
    result, _ = visit(small_form(), Submit(), Type("Name", "late"))
    assert [one.status for one in result.attempts] == ["ok", "not found", "not found"]
    assert len(result.receipts) == 1
    result, _ = visit(small_form(), Submit(), Navigate("/test/small"), Type("Name", "again"))
    assert [one.entries["name"] for one in result.receipts] == [("",), ("again",)]


def test_done_ends_a_plan_and_so_do_limits():
    result, arrived = visit(small_form(), Done(), Type("Name", "x"))
    assert arrived is None
    assert len(result.attempts) == 1
    assert not result.cut
    many = Plan(tuple(Type("Name", str(number_)) for number_ in range(STEPS + 20)))
    (result,) = DirectExecutor().run(FormCase(FormView(small_form())), [many])
    assert len(result.attempts) == STEPS
    assert result.cut
    (result,) = DirectExecutor(seconds=-1).run(FormCase(FormView(small_form())), [many])
    assert result.cut


def test_server_errors_come_back_filled_in_and_can_be_corrected():
    form = ordered_form()
    wrong = (Type("Name", "Ann"), Type("Start", "2026-05-02"), Type("End", "2026-05-01"), Submit())
    result, arrived = visit(form, *wrong, Type("End", "2026-05-03"))
    assert [bool(one.errors) for one in result.receipts] == [True, False]
    assert arrived["name"] == ("Ann",)
    assert arrived["end"] == ("2026-05-03",)


def test_plans_do_not_see_one_another():
    executor, case = DirectExecutor(), FormCase(FormView(small_form()))
    plans = [Plan((Type("Name", "a"), Submit())), Plan((Submit(),)), Plan(())]
    first, second, third = executor.run(case, plans)
    assert first.receipts[0].entries["name"] == ("a",)
    assert second.receipts[0].entries["name"] == ("",)
    assert third.receipts == ()
    executor.close()
    executor.close()


def test_labels_are_found_and_never_guessed():
    names = ("Email", "Email address", "Work email", "Town", "City of birth")
    form = form_of(*(text(name, ANY) for name in names))
    model = parse_page(render_page(FormView(form, stars=True), 1).encode())
    kinds = frozenset({"text"})

    def label(wanted):
        found = find(model, wanted, kinds)
        return found if isinstance(found, str) else found.label

    assert label("email") == "Email"
    assert label("EMAIL ADDRESS:") == "Email address"
    assert label("birth city") == "City of birth"
    assert label("mail").startswith("nothing")
    assert label("Work") == "Work email"
    assert label("email_address") == "Email address"
    two = form_of(text("Home phone", ANY), text("Work phone", ANY))
    model = parse_page(render_page(FormView(two), 1).encode())
    assert label("phone").startswith("nothing is called")


@pytest.mark.parametrize(
    ("text_", "language", "iso"),
    [
        *(
            (text_, "en", "2026-03-04")
            for text_ in ("2026-03-04", "03/04/2026", "4.3.2026", "4 March 2026")
        ),
        *(
            (text_, "en", "2026-03-04")
            for text_ in ("4th of March, 2026", "Wednesday, March 4, 2026")
        ),
        *(
            (text_, "pt", "2026-03-04")
            for text_ in ("2026/3/4", "Mar 4, 2026", "4 de março de 2026")
        ),
        *(("03/04/2026", "pt", "2026-04-03"), ("1º de maio de 2026", "pt", "2026-05-01")),
        *(("13/04/2026", "en", "2026-04-13"), ("04/13/2026", "pt", "2026-04-13")),
        *(
            (text_, "en", "")
            for text_ in ("2026-02-29", "31/31/2026", "tomorrow", "ma 4 2026", "9" * 5000, "")
        ),
    ],
)
def test_a_date_is_a_date_however_it_is_spelled(text_, language, iso):
    assert read_date(text_, language) == iso


@pytest.mark.parametrize(
    ("text_", "got"),
    [
        *(
            ("14:30", "14:30"),
            ("2:30 PM", "14:30"),
            ("12am", "00:00"),
            ("14h30", "14:30"),
            ("9h", "09:00"),
        ),
        *(("7:05", "07:05"), ("25:00", ""), ("13pm", ""), ("noon", ""), ("7", "")),
    ],
)
def test_times(text_, got):
    assert read_time(text_) == got


@pytest.mark.parametrize(
    ("text_", "language", "got"),
    [
        *(
            ("1234.5", "en", "1234.5"),
            ("1,234.50", "en", "1234.50"),
            ("$1,234", "en", "1234"),
            ("12 %", "en", "12"),
        ),
        *(("-3", "en", "-3"), ("+3", "en", "3"), ("1e3", "en", "1e3")),
        *(("1.234,56", "pt", "1234.56"), ("R$ 1.234", "pt", "1234"), ("1.234", "pt", "1234")),
        *(("4,5", "pt", "4.5"), ("4.5", "pt", "4.5")),
        *((text_, "en", "") for text_ in ("4,5", "three", "NaN", "Infinity", "٣", "9" * 5000)),
    ],
)
def test_numbers(text_, language, got):
    assert read_number(text_, language) == got


def test_what_a_control_does_not_take_leaves_it_empty():
    assert typed("number", "abc").refused
    assert typed("number", "abc").value == ""
    _, arrived = visit(small_form(), Type("Count", "4"), Type("Count", "abc"))
    assert arrived["count"] == ("",)


def test_hostile_numbers_and_texts_take_no_time():
    form = form_of(number("N", ANY, step="0.01"), text("T", ANY))
    values = (
        "9" * 9999,
        "1e999",
        "1e-999",
        "-" * 9999,
        "0." + "1" * 90,
        "\ud800",
        "\x00" * 999,
        "1e30",
    )
    assert most_work(lambda value: visit(form, Type("N", value), Type("T", value)), values) < 2


def test_labels_that_never_end_are_read_once():
    page = ("<form>" + "<label for=a><select><option>" * 200).encode()
    assert len(parse_page(page).controls) == 100
    assert work(lambda: parse_page(page)) < 30


def test_pages_are_sent_as_html_says():
    pages = Pages()
    executor = DirectExecutor(Site(pages))
    sent = {name: carry_out(executor, pages, name)[0] for name in CASES}
    assert sent == {name: wanted for name, (_, _, wanted) in CASES.items()}
