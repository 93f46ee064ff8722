"""The README's pictures: what `plumbline check` prints on a real log, and the first screen of a
run's report.

    python -m benchmarks.pictures check                  # trains the log first: TRL, a tiny model, length is paid
    python -m benchmarks.pictures check trl-output       # of a log that exists
    python -m benchmarks.pictures report runs/mine

Each picture is made for a light and for a dark page, into docs/pictures. Reports need Chromium and
Playwright.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 100
SCREEN: Any = {"width": 1280, "height": 800}
MOST_BYTES = 150_000
JOB = "trl GRPO: length is paid"
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


def train_log(folder: Path) -> Path:
    """A real run of TRL with one fault: the reward pays for length."""
    from benchmarks.doctors.trl_jobs import jobs

    (job,) = [job for job in jobs(folder / "models") if job.name == JOB]
    job.make(folder / "log")
    return folder / "log"


def printed(log: Path) -> str:
    """What a terminal of 100 columns gets from `plumbline check trl-output`, with its control
    sequences."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "trl-output"
        shutil.copytree(log, copy) if log.is_dir() else shutil.copy(log, copy)
        environment = {
            **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
            "PYTHONPATH": os.pathsep.join(
                str(Path(entry).resolve()) for entry in sys.path if entry
            ),
            "COLUMNS": str(COLUMNS),
            "FORCE_COLOR": "1",
            "TERM": "xterm-256color",
            "COLORTERM": "",
        }
        command = [sys.executable, "-m", "plumbline", "check", copy.name]
        result = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
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
    console.print(Text.assemble(("$ ", "dim"), ("plumbline check trl-output", "bold")))
    console.print(Text.from_ansi(text.rstrip()), end="\n\n")  # the last line is cut at its foot
    svg = console.export_svg(title="", theme=theme, unique_id=f"check-{scheme}")
    # a frame that a white page shows, too
    svg = svg.replace("rgba(255,255,255,0.35)", "rgba(127,127,127,0.5)")
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace(
        "Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
    )


def first_screen(report: Path, scheme: Literal["light", "dark"]) -> bytes:
    """A report's first screen as a PNG file of few colours."""
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
        page = browser.new_page(viewport=SCREEN, color_scheme=scheme)
        page.goto(report.resolve().as_uri())
        shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
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
    parser.add_argument(
        "source", type=Path, nargs="?", help="a log, or the folder of a run with its report"
    )
    arguments = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    if arguments.kind == "report":
        if arguments.source is None:
            parser.error("name the folder of a run")
        for scheme in SCHEMES:
            (PICTURES / f"report-{scheme}.png").write_bytes(
                first_screen(arguments.source / "report.html", scheme)
            )
        return
    with tempfile.TemporaryDirectory() as folder:
        text = printed(arguments.source or train_log(Path(folder)))
    for scheme in SCHEMES:
        (PICTURES / f"check-{scheme}.svg").write_text(terminal(text, scheme) + "\n")


if __name__ == "__main__":
    main()
