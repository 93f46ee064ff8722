"""Build the page that checks a log in a browser (`make page`). Nothing of it is installed, and nothing
that it fetches is kept in the repository.

Pyodide comes from npm, packages of Python alone come from PyPI. Of NumPy and pydantic-core only
Pyodide itself publishes a build for browsers.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
VERSION = "0.27.7"
"""Of Pyodide: Python 3.12."""
PUBLISHED = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
CORE = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
COMPILED = ("numpy", "pydantic-core")
PURE = (
    *("annotated-doc", "annotated-types", "pyyaml", "rich", "shellingham", "typer"),
    *("typing-extensions", "typing-inspection"),
)
"""What `plumbline check` imports beside them, in the versions of constraints.txt."""
OURS = ("index.html", "page.css", "page.js", "worker.js", "bridge.py")
PALETTE = ROOT / "src" / "plumbline" / "reports" / "templates" / "palette.css"


def run(*command: str) -> str:
    """Run a program and give what it printed.

    Raises:
        SystemExit: it is missing, or failed.
    """
    if shutil.which(command[0]) is None:
        sys.exit(f"error: {command[0]} is missing\n  fix: install it (npm comes with Node.js)")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed\n{done.stderr.strip()}")
    return done.stdout


def fetch_core(fetched: Path) -> dict:
    """Unpack Pyodide from npm, and give the table of its packages."""
    package = fetched / f"pyodide-{VERSION}.tgz"
    if not package.exists():
        run("npm", "pack", "--silent", f"pyodide@{VERSION}", "--pack-destination", str(fetched))
    with tarfile.open(package) as archive:
        archive.extractall(fetched, filter="data")
    return json.loads((fetched / "package" / "pyodide-lock.json").read_text())


def fetch_compiled(entry: dict, fetched: Path, given: Path | None) -> Path:
    """A compiled wheel, from a folder of yours or as Pyodide publishes it.

    Raises:
        SystemExit: it cannot be had, or is another than Pyodide's table says.
    """
    name = entry["file_name"]
    if given is not None and (given / name).exists():
        return given / name
    path = fetched / name
    if not path.exists():
        try:
            with urllib.request.urlopen(PUBLISHED + name, timeout=60) as answer:
                content = answer.read()
        except OSError as error:
            sys.exit(
                f"error: {PUBLISHED}{name} cannot be fetched: {error}\n"
                "  fix: put the file into a folder, and give it: make page WHEELS=FOLDER"
            )
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            sys.exit(f"error: {PUBLISHED}{name} is not the file that pyodide-lock.json names")
        path.write_bytes(content)
    return path


def fetch_pure(fetched: Path, pydantic: str) -> list[Path]:
    """Wheels of Python alone."""
    folder = fetched / "pure"
    shutil.rmtree(folder, ignore_errors=True)
    download = [*("-m", "pip", "download", "--quiet", "--no-deps"), "--only-binary=:all:"]
    target = ["--python-version=3.12", f"--dest={folder}"]
    pins = ["-c", str(ROOT / "constraints.txt")]
    run(sys.executable, *download, *target, *pins, *PURE)
    run(sys.executable, *download, *target, f"pydantic=={pydantic}")
    return sorted(folder.glob("*.whl"))


def pack(target: Path, wheels: list[Path]) -> None:
    """One archive of all that is plain Python. A compiled helper of PyYAML stays out: it has a plain
    twin."""
    source = ROOT / "src"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted((source / "plumbline").rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                packed.write(path, path.relative_to(source))
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if not name.endswith((".so", ".pyi", "/")):
                        packed.writestr(name, archive.read(name))


def build(target: Path, fetched: Path, given: Path | None) -> None:
    """Write the page's folder anew."""
    fetched.mkdir(parents=True, exist_ok=True)
    lock = fetch_core(fetched)
    entries = {name: lock["packages"][name] for name in COMPILED}
    wheels = [fetch_compiled(entry, fetched, given) for entry in entries.values()]
    pure = fetch_pure(fetched, lock["packages"]["pydantic"]["version"])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in [
        *(fetched / "package" / name for name in CORE),
        *wheels,
        *(HERE / name for name in OURS),
        PALETTE,
    ]:
        shutil.copyfile(path, target / path.name)
    pack(target / "app.zip", pure)
    for entry, wheel in zip(entries.values(), wheels, strict=True):
        # the browser holds the file to it; what it needs is in app.zip
        entry |= {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(), "depends": []}
    (target / "pyodide-lock.json").write_text(json.dumps(lock | {"packages": entries}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "page")
    parser.add_argument("--fetched", type=Path, default=ROOT / "dist" / "fetched")
    parser.add_argument("--wheels", type=Path, help="a folder with the compiled wheels")
    given = parser.parse_args()
    build(given.out, given.fetched, given.wheels)
    size = sum(path.stat().st_size for path in given.out.iterdir()) / 1e6
    print(f"{given.out}: {size:.1f} MB; look at it: python3 -m http.server -d {given.out}")


if __name__ == "__main__":
    main()
