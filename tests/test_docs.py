"""The documentation: every link points at something that exists, pages stay short, and the site has
them all."""

import ast
import os
import re
import tokenize
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = {"models", "runs", "data", "site", "build", "dist", "node_modules", "__pycache__"}
GUIDE_PAGES, GUIDE_WORDS = 20, 33_000
RESEARCH_PAGES, RESEARCH_WORDS = 16, 26_500
README_LINES, README_WORDS = 130, 970
CONTRIBUTING_WORDS, AGENTS_WORDS = 540, 300
PICTURE_BYTES = 150_000
ENTRY_LENGTH, UNRELEASED_WORDS = 140, 700
"""Limits of words have 15 % of room over what stands there: to say more, cut what repeats."""

RETIRED = {
    # what to say: (names that the code has not, words that no page has)
    "sampling distribution": ("token_law|common_law|same_law", "token_law|common_law|normal law"),
    "baseline": ("best_controls?|control_names?", "best controls?|control (?:blank|constant)"),
    "gold answer": ("reference_answers?", "reference answers?"),
    "advantage, loss weight": ("[cC]redit|credits_?|credited", "credit_? of"),
    "task data": ("grounds?", "TaskData of"),
    "micro-batch": ("passes", "passes of an update|smaller passes"),
    "async rollouts, off-policy by k steps": ("ahead|lag", r"rl\.lag|training/ahead"),
    "reward workers": ("judging", r"judging\.py"),
    "hidden states and head": ("Places", r"policies/places|places\.py"),
    "block cache": ("Behind", "Behind"),
    "learned temperature": ("Exploration", "Exploration"),
    "output guard, metadata, remote sync": ("claims|cards", r"runs/(?:claims|cards|published)"),
    "templating, schema docs": ("handoff", r"recipe/(?:keys|handoff|moved|running)\.py"),
    "split task, callback base, browser page": ("DealtTask|Guest|Seat|Keeper", "DealtTask"),
}
BARE = "said|told|one|each|own|left|known|stood|know|elsewhere|theirs|near|few|some|plain|shown"
"""No name of a function: it is a verb and a noun, so that a search finds it."""
KEPT: set[tuple[str, str]] = set()
"""Files with a name that they keep, because it means something else there."""

FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINKS = [
    re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)"),
    re.compile(r"^ {0,3}\[[^\]]+\]:[^\S\n]+<?([^\s>]+)>?[^\S\n]*$", re.MULTILINE),
    re.compile(r"\b(?:src|srcset|href)=\"([^\"]+)\""),
]
HEADING = re.compile(r"^ {0,3}#{1,6}[^\S\n]+(.+?)[^\S\n]*#*$", re.MULTILINE)
SENTENCE_END = re.compile(r"[.!?][\"')\]*_]*(?=\s+[\"'(\[*_`]*[A-Z0-9`]|\s*$)")


def pages(folder: Path = ROOT) -> list[Path]:
    """The Markdown files of the repository, without those that a run, a build or an environment
    made."""
    found = []
    for parent, folders, files in os.walk(folder):
        top = Path(parent) == ROOT
        folders[:] = sorted(
            name
            for name in folders
            if not (name.startswith(".") and name != ".github")
            and (name not in NOT_OURS or not top)
        )
        found += [Path(parent, name) for name in sorted(files) if name.endswith(".md")]
    return found


def guides() -> list[Path]:
    return sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")])


def research() -> list[Path]:
    return sorted((ROOT / "docs" / "research").rglob("*.md"))


def words(paths: list[Path]) -> int:
    """As `wc -w` counts."""
    return sum(len(path.read_text().split()) for path in paths)


def links(text: str) -> list[str]:
    """Addresses of a page's links and pictures, without those in code."""
    text = CODE.sub("", COMMENT.sub("", FENCE.sub("", text)))
    return [address for pattern in LINKS for address in pattern.findall(text)]


def anchors(text: str) -> set[str]:
    """What `#...` may name on a page: headings as a forge writes them, and ids in HTML."""
    text = FENCE.sub("", text)
    taken: dict[str, int] = {}
    found = set(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text))
    for heading in HEADING.findall(text):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        count = taken[slug] = taken.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken(page: Path, root: Path = ROOT) -> list[str]:
    """Relative links of a page to what does not exist, or lies outside the repository."""
    wrong = []
    for address in links(page.read_text()):
        if re.match(r"[a-z][a-z0-9+.-]*:", address):
            continue
        path, _, anchor = address.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(root) or not target.exists():
            wrong.append(address)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            wrong.append(f"{address} (no such heading)")
    return wrong


def sentences(paragraph: str) -> int:
    """How many sentences a paragraph has; code, links and decimals count as words."""
    text = CODE.sub("Code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))
    return len(SENTENCE_END.findall(re.sub(r"\b(e\.g|i\.e|vs|cf|et al|Fig|Eq|No)\.", r"\1", text)))


def opening(page: Path) -> str:
    """The paragraph behind a page's title; empty where something else stands there."""
    title, _, rest = page.read_text().lstrip().partition("\n")
    paragraph = rest.strip().partition("\n\n")[0]
    return (
        paragraph
        if title.startswith("# ") and not re.match(r"[#|>!<]|```|[-*] |\d+\. ", paragraph)
        else ""
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_points_at_something(page):
    assert not broken(page)


def test_a_broken_link_would_be_found(tmp_path):
    (tmp_path / "other.md").write_text(
        "# A page & its `code`\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[right](other.md#a-page--its-code), [again](other.md#twice-1), [here](#page), "
        "[web](https://a.b/c.md),\n"
        "`[code](none.md)`, [gone](gone.md), [no heading](other.md#no-heading), "
        "[out](../../etc)\n\n"
        '<source srcset="dark.svg"> ![picture](light.svg '
        '"title")\n\n```\n[fenced](none.md)\n```\n\n[ref]: ref.md\n'
    )
    assert sorted(broken(page, tmp_path)) == [
        "../../etc",
        "dark.svg",
        "gone.md",
        "light.svg",
        "other.md#no-heading (no such heading)",
        "ref.md",
    ]


def test_guides_and_reference_are_few_and_short():
    assert len(guides()) <= GUIDE_PAGES, [path.name for path in guides()]
    made = ROOT / "docs" / "reference" / "findings.md"  # by the table of messages
    assert words([page for page in guides() if page != made]) <= GUIDE_WORDS


def test_research_pages_are_few_and_short():
    assert len(research()) <= RESEARCH_PAGES, [path.name for path in research()]
    assert words(research()) <= RESEARCH_WORDS


def test_no_page_lies_elsewhere():
    folders = {path.parent.relative_to(ROOT / "docs").as_posix() for path in pages(ROOT / "docs")}
    assert folders <= {".", "reference", "research"}
    assert not list(ROOT.glob("environments/*/docs"))


@pytest.mark.parametrize("page", research(), ids=lambda page: page.name)
def test_a_research_page_opens_with_its_answer(page):
    assert 2 <= sentences(opening(page)) <= 4, opening(page)


@pytest.mark.parametrize(
    ("paragraph", "count"),
    [
        ("One. Two! Three?", 3),
        ("The gain is 0.073 [0.034, 0.114], p < 0.001. It holds.", 2),
        ("See [the page. It](a.md) says so.", 2),
        ("Run `plumbline check. Now` (e.g. Here). `Done` is next.", 2),
        ("No end", 0),
        ("A line\nthat breaks. *And* another.", 2),
    ],
)
def test_sentences_are_counted(paragraph, count):
    assert sentences(paragraph) == count


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= README_LINES
    assert words([ROOT / "README.md"]) <= README_WORDS


def test_pages_for_contributors_and_pictures_are_small():
    assert words([ROOT / "CONTRIBUTING.md"]) <= CONTRIBUTING_WORDS
    assert words([ROOT / "AGENTS.md"]) <= AGENTS_WORDS
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert [path.name for path in pictures if path.stat().st_size > PICTURE_BYTES] == []
    assert {
        f"{name}-{scheme}"
        for name in ("check", "report", "report-narrow")
        for scheme in ("light", "dark")
    } <= {path.stem for path in pictures}


def test_the_changelog_has_one_line_an_entry():
    text = (ROOT / "CHANGELOG.md").read_text()
    odd = [
        line for line in text.splitlines() if not re.match(r"(#{1,3} \S|- \S|[A-Z].*[.:]$|$)", line)
    ]
    assert not odd
    assert not [line for line in text.splitlines() if len(line) > ENTRY_LENGTH]
    unreleased, *releases = re.split(r"^## (?=\d)", text, flags=re.MULTILINE)
    assert len(unreleased.split()) <= UNRELEASED_WORDS
    dates = [re.match(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d$", one.split("\n")[0]) for one in releases]
    assert releases
    assert all(dates)
    headings = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_site_has_every_page_once():
    named: list[str] = []

    def walk(part):
        for entry in part:
            for target in entry.values():
                walk(target) if isinstance(target, list) else named.append(target)

    walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    brought_in = {"index.md", "changelog.md", "contributing.md"}
    brought_in |= {
        f"environments/{path.parent.name}.md" for path in ROOT.glob("environments/*/README.md")
    }
    below_docs = {path.relative_to(ROOT / "docs").as_posix() for path in pages(ROOT / "docs")}
    assert sorted(named) == sorted(below_docs | brought_in)


def test_the_code_and_the_pages_have_one_vocabulary():
    found = set()
    for path in sorted((ROOT / "src").rglob("*.py")):
        with path.open("rb") as file:
            names = {
                one.string for one in tokenize.tokenize(file.readline) if one.type == tokenize.NAME
            }
        functions = {
            node.name.strip("_")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        wrong = {name for name in functions if re.fullmatch(BARE, name)}
        wrong |= {
            name
            for name in (names | {path.stem})
            for old, _ in RETIRED.values()
            if re.fullmatch(old, name.strip("_"))
        }
        found |= {(path.relative_to(ROOT).as_posix(), name) for name in wrong}
    for page in pages():
        if page.name != "CHANGELOG.md" and "experiments" not in page.parts:
            text = page.read_text()
            found |= {
                (page.relative_to(ROOT).as_posix(), word)
                for _, old in RETIRED.values()
                for word in re.findall(rf"\b(?:{old})\b", text)
            }
    assert found <= KEPT, sorted(found - KEPT)
