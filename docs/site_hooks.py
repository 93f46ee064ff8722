"""What MkDocs needs beside the pages of docs/: pages from elsewhere in the repository, and links as
a site has them."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    **{
        path.relative_to(ROOT).as_posix(): f"environments/{path.parent.name}.md"
        for path in sorted(ROOT.glob("environments/*/README.md"))
    },
}
"""Files of the repository outside docs/, and the page that each becomes."""
SOURCES = {page: source for source, page in PAGES.items()}
FENCED = re.compile(r"(^ *```.*?^ *```[^\S\n]*$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FILE_NAME = re.compile(r"`?[\w./-]+\.md`?")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
IMAGE = re.compile(r"""(!\[[^\]]*\]\(|\bsrc="|\bsrcset=")([^)"\s]+)""")
LIST_AFTER_TEXT = re.compile(
    r"^(?! *(?:[-*+]|\d+\.) )(?P<text> *[^\s|#>].*)\n(?=(?:[-*+]|1\.) )", re.MULTILINE
)
NUMBER = r"[+-]?\d*\.?\d+(?: %)?"
FIGURE = re.compile(
    r"(?P<code>^ {4}[^\n]*|(?P<ticks>`+)(?!`)[\s\S]+?(?<!`)(?P=ticks)(?!`))"
    rf"|\[{NUMBER},\s{NUMBER}\](?!\()|\d %|\d+ / \d|\b[np] [=<] \.?\d",
    re.MULTILINE,
)
"""A figure that may not break over two lines, or code, which stays as it is."""
OF_A_RUN = re.compile(r"(?<=^## Of a run$).+?(?=^## )", re.MULTILINE | re.DOTALL)
"""The part of reference/checks.md with a row for each check of records."""
CHECK_ROW = re.compile(r"^\| (?!check )([a-z-]+)(?= (?:\(note\) )?\|)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that they have on a forge."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that come from elsewhere in the repository."""
    for source, page in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Rewrite links, keep figures in one piece, and put the blank line before a list that
    Python-Markdown needs; code blocks stay as they are."""
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")
    if here == "reference/checks.md":
        markdown = OF_A_RUN.sub(
            lambda part: CHECK_ROW.sub(r'| <a id="\1"></a><span class="code">\1</span>', part[0]),
            markdown,
        )
    elif here == "symptoms.md":
        markdown = _link_checks(markdown)
    blocks = FENCED.split(markdown)
    blocks[::2] = [_rewritten(text, source, here, config.repo_url or "") for text in blocks[::2]]
    return "".join(blocks)


def _link_checks(text: str) -> str:
    """Make the name of each check a link to what it looks for."""
    part = OF_A_RUN.search((ROOT / "docs" / "reference" / "checks.md").read_text())
    names = "|".join(CHECK_ROW.findall(part[0]) if part else ())
    return re.sub(rf"`({names})`", r"[`\1`](reference/checks.md#\1)", text)


def _keep_together(match: re.Match[str]) -> str:
    return match[0] if match["code"] else re.sub(r"\s", "\N{NO-BREAK SPACE}", match[0])


def _rewritten(text: str, source: str, here: str, forge: str) -> str:
    def link(match: re.Match[str]) -> str:
        words, address = match[1], match[2]
        target = _on_site(address, source, here)
        if FILE_NAME.fullmatch(words):
            words = _title(_in_repository(address.partition("#")[0], source)) or words
        if target is not None:
            return f"[{words}]({target})"
        if forge:
            path, mark, anchor = address.partition("#")
            return f"[{words}]({forge.rstrip('/')}/blob/main/{_in_repository(path, source)}{mark}{anchor})"
        return words  # a file of the repository that the site does not have

    def image(match: re.Match[str]) -> str:
        return match[1] + (_on_site(match[2], source, here) or match[2])

    text = FIGURE.sub(_keep_together, IMAGE.sub(image, LINK.sub(link, text)))
    return LIST_AFTER_TEXT.sub(r"\g<text>\n\n", text)


def _title(path: str) -> str:
    """What a page of the repository is called; empty where there is none."""
    found = TITLE.search((ROOT / path).read_text()) if path.endswith(".md") else None
    return found[1] if found else ""


def _in_repository(address: str, source: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), address))


def _on_site(address: str, source: str, here: str) -> str | None:
    """The address from a page of the site; None for a file of the repository that is no page.

    A broken link keeps its address, so that `mkdocs build --strict` names it.
    """
    path, mark, anchor = address.partition("#")
    if not path or ":" in path:
        return address
    target = _in_repository(path, source)
    if target in PAGES:
        target = PAGES[target]
    elif target.startswith("docs/") and (ROOT / target).is_file():
        target = target.removeprefix("docs/")
    elif (ROOT / target).exists():
        return None
    else:
        return address
    return posixpath.relpath(target, posixpath.dirname(here) or ".") + mark + anchor
