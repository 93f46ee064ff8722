"""The picture of the server's page in the documents: two models of one run, the same example, in a
real Chromium.

    plumbline run forms-demo-masked
    python experiments/serve_page.py runs/forms-demo-masked/models/sft runs/forms-demo-masked/models/rl

It serves the models as `plumbline serve` does, sends an example by the page itself, and writes
docs/serve-page.png.
"""

import argparse
import io
import re
import subprocess
import sys
from pathlib import Path

from plumbline_browser.chromium import find_chromium

WIDTH, HEIGHT, STEP = 960, 900, 9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs=2, help="the models that stand side by side")
    parser.add_argument(
        "--example", type=int, default=0, help="which of the first 20 test examples"
    )
    parser.add_argument(
        "--step", type=int, default=STEP, help="the denoising step at which the first one is shown"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/serve-page.png"))
    options = parser.parse_args()
    names = [f"{Path(model).name}={model}" for model in options.models]
    command = [sys.executable, "-m", "plumbline", "serve", *names, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = next(line for line in server.stderr if " at http://" in line)
            address = re.search(r"http://[\d.]+:\d+", said)[0]
            shoot(address, [name.partition("=")[0] for name in names], options)
        finally:
            server.terminate()
    print(f"wrote {options.out}: {options.out.stat().st_size / 1000:.0f} kB")


def shoot(address: str, names: list[str], options: argparse.Namespace) -> None:
    """Ask both models by the page, and take a picture of what it shows."""
    from PIL import Image
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), chromium_sandbox=False)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(address)
        expect(page.locator("#said")).to_contain_text("Examples 1 to", timeout=60_000)
        page.get_by_label("Beside it").select_option(names[1])
        page.get_by_label("Example", exact=True).select_option(index=options.example)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("heading", name="Verdict")).to_have_count(2, timeout=120_000)
        if page.get_by_label("Denoising step").first.is_visible():
            page.get_by_label("Denoising step").first.fill(str(options.step))
        page.evaluate("document.activeElement.blur()")
        page.set_viewport_size(
            {"width": WIDTH, "height": page.evaluate("document.documentElement.scrollHeight")}
        )
        for frame in page.frames[1:]:
            frame.wait_for_load_state("load")
        page.wait_for_timeout(500)  # until the frames are painted
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.quantize(64).save(options.out, optimize=True)  # few colours, for a small file
        browser.close()


if __name__ == "__main__":
    main()
