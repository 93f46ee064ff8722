"""The page in a real Chromium: by keyboard alone, with hostile answers, on small screens, without a
network."""

import pytest

pytest.importorskip("starlette")
pytest.importorskip("selectolax")
pytest.importorskip("playwright", reason="driving a browser needs Playwright")

from playwright import sync_api as playwright

from plumbline.errors import RecipeError
from plumbline.policies.canvas import HIDDEN
from plumbline.policies.masked.options import MaskedSampling
from plumbline.serve.batched import BatchedBackend
from plumbline.serve.page.routes import PUBLIC, routes
from plumbline.tasks import NOWHERE, open_task
from plumbline_browser.chromium import find_chromium
from tests.policies.masked.conftest import masked_folder  # noqa: F401 - a fixture
from tests.policies.masked.conftest import opened as open_masked
from tests.serve.page_models import FORMS, Fixed, trained_on_forms
from tests.serve.serving import running

EVIL = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script></script><svg '
    "onload=window.hacked=3>"
)
SECRET = 'Ada <b>"Lovelace"</b>'


@pytest.fixture(scope="module")
def examples():
    return open_task("forms", FORMS, NOWHERE).examples("test")


@pytest.fixture(scope="module")
def address(tmp_path_factory, masked_folder, examples):  # noqa: F811 - the fixture
    gold = {one.messages[-1]["content"]: one.gold for one in examples}
    value = examples[0].gold.split("'")[1]

    def evil(asked):
        plan = gold.get(asked.request.messages[-1]["content"], "")
        return EVIL + "\n" + plan.replace(value, EVIL.replace('"', ""))

    sampling = MaskedSampling(max_tokens=8, steps=4, selector="random")
    masked = BatchedBackend("masked", open_masked(masked_folder), sampling)
    models = [
        Fixed(
            "gold", lambda asked: gold.get(asked.request.messages[-1]["content"], "hello"), 0.001
        ),
        Fixed("evil", evil),
        Fixed("endless", lambda _: "on and " * 20_000, 0.01),
        masked,
    ]
    folder = trained_on_forms(tmp_path_factory.mktemp("page") / "forms")
    sources = {"gold": folder, "evil": folder, "endless": folder, "masked": ""}
    with running(models, routes=routes(sources)) as server:
        yield server.address


@pytest.fixture(scope="module")
def browser():
    try:
        path = find_chromium()
    except RecipeError as why:
        pytest.skip(str(why))
    # Whatever is not asked of this machine is sent to a port where nobody listens.
    flags = ["--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>;127.0.0.1"]
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=path, args=[*flags, "--disable-gpu"], chromium_sandbox=False
        )
        yield found
        found.close()


@pytest.fixture
def page(browser, address):
    """The open page; afterwards nothing may have been said on the console, and nothing asked
    elsewhere."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.set_default_timeout(10_000)
    trouble, asked = [], []
    page.on(
        "console",
        lambda said: trouble.append(said.text) if said.type in {"error", "warning"} else None,
    )
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append("a dialog"), dialog.dismiss()))
    context.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    playwright.expect(page.locator("#said")).to_contain_text("Examples 1 to")
    yield page
    assert trouble == []
    assert asked
    assert all(url.startswith((address + "/", "about:srcdoc")) for url in asked), asked
    context.close()


def focused(page):
    where = "document.activeElement.id || document.activeElement.tagName"
    # also for a moment on the way through a frame, which is another process
    if page.evaluate(where) == "BODY":
        page.wait_for_timeout(200)
    return page.evaluate(where)


def tab_to(page, wanted):
    for _ in range(40):
        if focused(page) == wanted:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the focus never came to {wanted}")


def verdict(page, side):
    found = page.locator(".side").nth(side).locator(".verdict")
    playwright.expect(found.locator("h3").first).to_have_text("Verdict")
    return found


def test_two_models_by_keyboard_alone(page, examples):
    tab_to(page, "model")
    page.keyboard.type("gold")
    tab_to(page, "second")
    page.keyboard.type("evil")
    tab_to(page, "example")
    page.keyboard.press("ArrowDown")
    tab_to(page, "seed")
    page.keyboard.type("7")
    tab_to(page, "send")
    page.keyboard.press("Enter")
    first = page.locator(".side").first
    playwright.expect(first.locator(".answer")).to_have_text(examples[1].gold)
    playwright.expect(first.locator(".answer")).to_have_attribute("aria-busy", "false")
    assert first.locator(".answer").get_attribute("aria-live") == "polite"
    assert first.get_by_role("heading", name="gold").is_visible()
    facts = first.locator(".facts").inner_text()
    assert all(
        word in facts
        for word in ("tokens", "seconds", "tokens a second", "finish reason", "stop", "gold")
    )
    right, other = verdict(page, 0), verdict(page, 1)
    assert right.locator(".parts li").first.inner_text().split() == ["score", "1.000"]
    assert "Read as: steps" in right.inner_text()
    assert "floor: the baseline" in right.inner_text()
    assert right.locator(".bar .ceiling").count() > 1
    assert right.locator("iframe").count() == 2
    assert other.is_visible()
    playwright.expect(page.locator("#send")).to_be_focused()  # and not lost when Stop was disabled


def test_every_stop_of_the_focus_is_seen_and_none_is_a_trap(page):
    page.get_by_role("button", name="Send").press("Enter")
    verdict(page, 0)
    playwright.expect(page.locator("#send")).to_be_focused()
    tab_to(page, "BODY")  # the end of the page
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        if (stop := focused(page)) == "BODY":
            break
        stops.append(stop)
        assert stop == "IFRAME" or page.evaluate(
            "(e => getComputedStyle(e).outlineStyle !== 'none' && e.getBoundingClientRect().height "
            "> 0)"
            "(document.activeElement)"
        ), stop
    else:
        pytest.fail(f"the focus does not leave the page: {stops}")
    wanted = [
        "model",
        "second",
        "split",
        "example",
        "SUMMARY",
        "temperature",
        "tokens",
        "seed",
        "send",
    ]
    order = [stops.index(one) for one in wanted]
    assert order == sorted(order)
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input,select,textarea,iframe')].filter(e => "
        "e.checkVisibility() &&"
        " !(e.labels?.length || e.title || e.getAttribute('aria-label'))).map(e => e.id)"
    )
    assert unnamed == []


def test_a_hostile_answer_is_text_and_runs_nothing(page, examples):
    page.get_by_label("Model", exact=True).select_option("evil")
    playwright.expect(page.locator("#said")).to_contain_text("Examples 1 to")
    page.get_by_role("button", name="Send").click()
    found = verdict(page, 0)
    assert EVIL in page.locator(".answer").inner_text()
    assert page.locator("img, svg, .sides script").count() == 0
    filled = page.frame_locator("iframe >> nth=0")
    assert EVIL.replace('"', "")[:20] in "".join(
        box.input_value()
        for box in filled.locator("input:not([type=radio],[type=checkbox]), textarea").all()
    )
    assert filled.locator("img, script, svg").count() == 0
    assert (
        filled.locator("input").first.evaluate("e => getComputedStyle(e).boxSizing") == "border-box"
    )  # its style came
    assert found.locator("iframe").first.get_attribute("sandbox") == ""
    assert page.evaluate("window.hacked") is None
    assert EVIL.replace('"', "")[:20] in found.inner_text()  # and in what the server received


def test_denoising_is_seen_step_by_step_and_again(page):
    page.get_by_label("Model", exact=True).select_option("masked")
    playwright.expect(page.locator("#said")).to_contain_text("does not say which task")
    page.get_by_label("Prompt").fill("a b")
    page.get_by_label("Temperature").fill("1")
    page.get_by_label("Most tokens").fill("8")
    page.evaluate(
        """() => { window.seen = [];
        new MutationObserver(() => window.seen.push(document.querySelector('.answer')?.textContent))
          .observe(document.getElementById('sides'), {subtree: true, childList: true, characterData: true}); }"""
    )
    page.get_by_role("button", name="Send").click()
    steps = page.get_by_label("Denoising step")
    playwright.expect(steps).to_be_visible()
    assert steps.get_attribute("max") == "4"
    final = page.locator(".answer").inner_text()
    assert HIDDEN not in final
    assert any(HIDDEN in (text or "") for text in page.evaluate("window.seen"))
    steps.focus()
    page.keyboard.press("Home")
    assert HIDDEN in page.locator(".answer").inner_text()
    assert page.locator(".steps output").inner_text() == "1 of 4"
    page.keyboard.press("End")
    assert page.locator(".answer").inner_text() == final
    # nobody knows what a prompt of one's own is worth
    assert page.locator(".verdict").inner_text() == ""


def test_an_answer_comes_piece_by_piece_and_can_be_stopped(page):
    page.get_by_label("Model", exact=True).select_option("endless")
    playwright.expect(page.locator("#said")).to_contain_text("Examples 1 to")
    page.get_by_role("button", name="Send").press("Enter")
    answer = page.locator(".answer")
    playwright.expect(answer).to_contain_text("on and on and on")
    assert answer.get_attribute("aria-busy") == "true"
    assert focused(page) == "stop"
    page.keyboard.press("Enter")
    playwright.expect(page.locator(".side .error")).to_have_text("Stopped.")
    playwright.expect(answer).to_have_attribute("aria-busy", "false")
    before = answer.inner_text()
    page.wait_for_timeout(100)
    assert answer.inner_text() == before
    playwright.expect(page.locator("#send")).to_be_focused()


def test_more_examples_and_another_split(page):
    page.get_by_label("Split").select_option("train")
    playwright.expect(page.locator("#said")).to_contain_text("Examples 1 to 20 of")
    first = page.get_by_label("Example", exact=True).locator("option").first.inner_text()
    page.get_by_role("button", name="Later examples").click()
    playwright.expect(page.locator("#said")).to_contain_text("Examples 21 to")
    assert page.get_by_label("Example", exact=True).locator("option").first.inner_text() != first
    page.get_by_role("button", name="Earlier examples").click()
    playwright.expect(page.locator("#said")).to_contain_text("Examples 1 to 20 of")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen_in_both_schemes(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 320, "height": 640})
    page.get_by_label("Beside it").select_option("evil")
    page.get_by_role("button", name="Send").click()
    verdict(page, 0), verdict(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 21, 26)"}[scheme]


def test_a_server_with_a_token_asks_for_it_once(browser, tmp_path):
    sources = {"gold": trained_on_forms(tmp_path / "forms")}
    with running(
        [Fixed("gold", lambda _: "hello")], routes=routes(sources), token="sesame", public=PUBLIC
    ) as server:
        page = browser.new_page()
        page.goto(server.address)
        playwright.expect(page.locator("#said")).to_have_text("This server wants a token.")
        for token, said in (("wrong", "wants a token"), ("sesame", "Examples 1 to")):
            page.get_by_label("Access token").fill(token)
            page.get_by_role("button", name="Use this token").press("Enter")
            playwright.expect(page.locator("#said")).to_contain_text(said)
        page.get_by_role("button", name="Send").press("Enter")
        verdict(page, 0)
        assert page.locator(".answer").inner_text() == "hello"
        assert "sesame" not in page.url + page.evaluate(
            "JSON.stringify([localStorage, sessionStorage])"
        )
        page.close()


def test_what_the_model_refuses_is_said(browser, tmp_path):
    sources = {"gold": trained_on_forms(tmp_path / "forms")}
    with running([Fixed("gold", lambda _: "x")], routes=routes(sources)) as server:
        page = browser.new_page()
        page.goto(server.address)
        playwright.expect(page.locator("#said")).to_contain_text("Examples 1 to")
        page.get_by_label("Most tokens").fill("5000")
        page.get_by_role("button", name="Send").click()
        playwright.expect(page.locator(".side .error")).to_contain_text("this server gives at most")
        playwright.expect(page.get_by_role("button", name="Send")).to_be_enabled()
        page.close()
