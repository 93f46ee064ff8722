"""Forms: episodes a second of every executor, against what public pipelines do, in one run.

    python benchmarks/forms.py                       # speed, as ratios
    python benchmarks/forms.py --memory 20000        # memory before, during and after so many episodes in one browser

An episode fills in a form of twelve fields (four texts, e-mail, telephone, date, two numbers, a
list of 27, a text of several lines, a radio group) and a consent box, and sends it. The peers are
written as the public pipelines are, on the same site and the same Chromium: (a) a new browser for
every episode, a call of Playwright's for every action; (b) a new context for every episode in one
browser, a call for every action. Rounds take turns, so that whatever else the machine does meets
all of them.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

from playwright.async_api import Page, async_playwright

from plumbline_browser.chromium import find_chromium
from plumbline_browser.plans.actions import Check, Plan, Select, Submit, Type
from plumbline_forms.executors.browser import BrowserExecutor
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import Execution, FormCase
from plumbline_forms.site.page import FormView
from plumbline_forms.site.serve import serve
from plumbline_forms.site.site import Site
from plumbline_forms.suite.catalogue import (
    area,
    consent,
    date,
    email,
    number,
    radio,
    select,
    tel,
    text,
)
from plumbline_forms.suite.declaration import Form
from plumbline_forms.suite.declaration import FormPage as FormPage
from plumbline_forms.suite.drawing import drawn

STATES = "AC|AL|AP|AM|BA|CE|DF|ES|GO|MA|MT|MS|MG|PA|PB|PR|PE|PI|RJ|RN|RS|RO|RR|SC|SP|SE|TO"
ANY = drawn("whole", 1, 2)  # the benchmark enters its own values
FORM = Form(
    name="cadastro",
    domain="benchmark",
    title="Cadastro de cliente",
    button="Enviar",
    language="pt",
    pages=(
        FormPage(
            (
                text("Nome", ANY, required=True),
                text("Empresa", ANY),
                text("CPF", ANY, maxlength=14),
                text("Cidade", ANY),
                email("E-mail", ANY, required=True),
                tel("Telefone", ANY),
                date("Nascimento", ANY),
                number("Renda", ANY, minimum="0", step="0.01"),
                number("Dependentes", ANY, minimum="0", maximum="20"),
                select("Estado", STATES),
                area("Mensagem", ANY),
                radio("Contato", "Telefone fixo|Celular|Mensagem de texto"),
                consent("Aceito os termos"),
            )
        ),
    ),
)
ENTRIES = {
    "Nome": "Inácio Zanetti",
    "Empresa": "Jequitibá Comércio",
    "CPF": "123.456.789-09",
    "Cidade": "Lagoa Serena",
    "E-mail": "inacio@example.org",
    "Telefone": "+55 11 90000-0000",
    "Nascimento": "1990-05-17",
    "Renda": "4321.50",
    "Dependentes": "2",
    "Mensagem": "Gostaria de receber o catálogo deste mês.",
}
PLAN = Plan(
    (
        *(Type(label, value) for label, value in ENTRIES.items()),
        Select("Estado", "SP"),
        Select("Contato", "Celular"),
        Check("Aceito os termos"),
        Submit(),
    )
)
CASE = FormCase(FormView(FORM))
GROUP = 64
ROUNDS = {"new browser": 3, "new context": 5, "served": 40, "in-page": 8 * GROUP, "direct": 8000}
"""Episodes of each in a round."""


async def by_hand(page: Page, address: str) -> None:
    """An episode with a call for every action, as public pipelines make it."""
    await page.goto(address)
    for label, value in ENTRIES.items():
        await page.get_by_label(label, exact=True).fill(value)
    await page.get_by_label("Estado", exact=True).select_option(label="SP")
    await page.get_by_label("Celular", exact=True).check()
    await page.get_by_label("Aceito os termos", exact=True).check()
    await page.get_by_role("button", name="Enviar").click()
    await page.wait_for_selector("[role=status]")


async def plain(driver):
    """A browser as Playwright starts it when it is asked for no more."""
    return await driver.chromium.launch(
        executable_path=find_chromium(), chromium_sandbox=os.geteuid() != 0
    )


async def new_browsers(site: Site, address: str, episodes: int) -> None:
    """(a) A new browser for each episode."""
    async with async_playwright() as driver:
        for _ in range(episodes):
            browser = await plain(driver)
            await in_new_context(site, browser, address)
            await browser.close()


async def new_contexts(site: Site, address: str, episodes: int) -> float:
    """(b) A new context for each episode; seconds without the browser's start."""
    async with async_playwright() as driver:
        browser = await plain(driver)
        await in_new_context(site, browser, address)
        began = time.perf_counter()
        for _ in range(episodes):
            await in_new_context(site, browser, address)
        seconds = time.perf_counter() - began
        await browser.close()
    return seconds


async def in_new_context(site: Site, browser, address: str) -> None:
    episode = site.open(CASE.view)
    context = await browser.new_context()
    await by_hand(await context.new_page(), address + site.address(episode, CASE.view))
    await context.close()
    check(len(site.close(episode)) == 1)


def check(condition: bool) -> None:
    """A benchmark that does not do its work measures nothing."""
    if not condition:
        raise SystemExit("an episode did not arrive at the server")


def run(executor, episodes: int, group: int) -> float:
    """Seconds for so many episodes, in calls of a group each."""
    began = time.perf_counter()
    for _ in range(0, episodes, group):
        results = executor.run(CASE, [PLAN] * group)
        check(all(isinstance(one, Execution) and one.receipts[0].complete for one in results))
    return time.perf_counter() - began


def speed(rounds: int) -> None:
    site = Site()
    served, in_page, direct = BrowserExecutor(), BrowserExecutor(navigates=False), DirectExecutor()
    seconds: dict[str, list[float]] = {name: [] for name in ROUNDS}
    with serve(site) as address:
        for warm in (served, in_page, direct):
            run(warm, 4, 4)
        for number in range(rounds):
            sys.stderr.write(f"\rround {number + 1} of {rounds}")
            for name, episodes in ROUNDS.items():
                if name == "new browser":
                    began = time.perf_counter()
                    asyncio.run(new_browsers(site, address, episodes))
                    took = time.perf_counter() - began
                elif name == "new context":
                    took = asyncio.run(new_contexts(site, address, episodes))
                elif name == "served":
                    took = run(served, episodes, episodes)
                elif name == "in-page":
                    took = run(in_page, episodes, GROUP)
                else:
                    took = run(direct, episodes, GROUP)
                seconds[name].append(took / episodes)
    sys.stderr.write("\r")
    served.close()
    in_page.close()
    print(
        "| executor | episodes a second | ms | times (a), median (least to greatest) | times (b) |"
    )
    print("|---|---|---|---|---|")
    for name, took in seconds.items():
        middle = statistics.median(took)
        a = [theirs / ours for theirs, ours in zip(seconds["new browser"], took, strict=True)]
        b = statistics.median(
            theirs / ours for theirs, ours in zip(seconds["new context"], took, strict=True)
        )
        ratio = f"**{statistics.median(a):,.1f}** ({min(a):,.1f} to {max(a):,.1f})"
        print(f"| {name} | {1 / middle:,.1f} | {1e3 * middle:,.3f} | {ratio} | {b:,.1f} |")
    print(
        f"\n{rounds} rounds; episodes in each: "
        f"{', '.join(f'{name} {count}' for name, count in ROUNDS.items())}"
    )


def memory(episodes: int) -> None:
    """Proportional set size of this process and all below it, at five moments."""
    for name, executor, group in (
        ("in-page", BrowserExecutor(navigates=False), GROUP),
        ("direct", DirectExecutor(), GROUP),
    ):
        run(executor, 2 * GROUP, group)
        found = [(2 * GROUP, megabytes())]
        for part in range(1, 5):
            run(executor, episodes // 4, group)
            found.append((2 * GROUP + part * episodes // 4, megabytes()))
        executor.close()
        print(f"{name}: " + ", ".join(f"{size:.0f} MB after {count:,}" for count, size in found))


def megabytes() -> float:
    parents = {}
    for folder in Path("/proc").iterdir():
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
        except (OSError, ValueError, IndexError):
            continue
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    total = 0
    for pid in mine:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--memory",
        type=int,
        metavar="EPISODES",
        help="measure memory over so many episodes instead",
    )
    options = parser.parse_args()
    memory(options.memory) if options.memory else speed(options.rounds)
