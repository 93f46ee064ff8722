"""The README's pictures: what `plumbline check` prints of a log, and the first screen of a
run's report.

    python -m benchmarks.pictures check
    python -m benchmarks.pictures report runs/mine

Each picture is made for a light and for a dark page, a report's for a telephone, too, into
docs/pictures. Reports need Chromium and Playwright.
"""

import argparse
import os
import re
import subprocess
import sys
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
LOG = "tests/public_reports/10-openr1-255-format-eats-accuracy"
COLUMNS = 64  # which a telephone's width still shows
SCREENS: dict[str, tuple[dict[str, Any], str]] = {
    "report": ({"viewport": {"width": 1024, "height": 800}}, "#top .grid2"),
    "report-narrow": (
        {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2},
        "#top figure",
    ),
}
"""Of each picture of a report the page, and what stands at its bottom."""
MOST_BYTES = 150_000
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
# Background, text, and the eight colours of a terminal, as GitHub's light and dark pages have them.
THEMES = {
    "light": (
        "ffffff",
        "1f2328",
        ["24292f", "cf222e", "116329", "7d4e00", "0969da", "8250df", "1b7c83", "57606a"],
    ),
    "dark": (
        "0d1117",
        "e6edf3",
        ["8b949e", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "b1bac4"],
    ),
}


def printed() -> str:
    """What a terminal gets from `plumbline check` of the README's log, with its control
    sequences."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
        "PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry),
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
        "COLORTERM": "",
    }
    command = [sys.executable, "-m", "plumbline", "check", LOG]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if not result.stdout:
        raise SystemExit(result.stderr)
    return result.stdout


def terminal(text: str, scheme: str) -> str:
    """That text as an SVG file without fonts of other hosts."""
    from rich.color import parse_rgb_hex as parsed
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    background, foreground, colours = THEMES[scheme]
    theme = TerminalTheme(
        parsed(background), parsed(foreground), [parsed(code) for code in colours]
    )
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, highlight=False
    )
    console.print(Text.assemble(("$ ", "dim"), (f"plumbline check {LOG}", "bold")))
    console.print(Text.from_ansi(text.rstrip()), end="\n\n")  # the last line is cut at its foot
    svg = console.export_svg(title="", theme=theme, unique_id=f"check-{scheme}")
    svg = svg.replace("viewBox", 'width="680" viewBox', 1)  # letters of a page's size
    # a frame that a white page shows, too
    svg = svg.replace("rgba(255,255,255,0.35)", "rgba(127,127,127,0.5)")
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace(
        "Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
    )


def first_screen(
    report: Path, scheme: Literal["light", "dark"], screen: dict[str, Any], last: str
) -> bytes:
    """A report from its title to what `last` selects, as a PNG file of few colours."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    from plumbline_browser.chromium import find_chromium

    quiet = [
        f"--disable-{part}"
        for part in ("gpu", "quic", "background-networking", "component-update", "sync")
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(),
            args=["--no-sandbox", "--no-first-run", *quiet],
        )
        page = browser.new_page(color_scheme=scheme, **screen)
        page.goto(report.resolve().as_uri())
        top, bottom = (page.locator(one).first.bounding_box() for one in ("h1", last))
        if not top or not bottom:
            raise SystemExit(f"{report}: it has no {last}")
        start = top["y"] - 16
        height = bottom["y"] + bottom["height"] + 16 - start
        clip: Any = {"x": 0, "y": start, "width": screen["viewport"]["width"], "height": height}
        taken = page.screenshot(clip=clip, full_page=True)
        shot = Image.open(BytesIO(taken)).convert("RGB")
        browser.close()
    for colours in (256, 128, 64, 32):
        file = BytesIO()
        shot.quantize(colours, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        if file.tell() <= MOST_BYTES:
            return file.getvalue()
    raise SystemExit(f"{report}: the picture is larger than {MOST_BYTES} bytes")


def main() -> None:
    """Make the pictures of one kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["check", "report"])
    parser.add_argument("run", type=Path, nargs="?", help="the folder of a run with its report")
    arguments = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    if arguments.kind == "check":
        text = printed()
        for scheme in SCHEMES:
            (PICTURES / f"check-{scheme}.svg").write_text(terminal(text, scheme) + "\n")
        return
    if arguments.run is None:
        parser.error("name the folder of a run")
    for name, (screen, last) in SCREENS.items():
        for scheme in SCHEMES:
            picture = first_screen(arguments.run / "report.html", scheme, screen, last)
            (PICTURES / f"{name}-{scheme}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
