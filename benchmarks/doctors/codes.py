"""The page of codes and figures: `python -m benchmarks.doctors.codes > docs/reference/findings.md`."""

import sys

from plumbline.checks.messages import SHARED, read_messages


def list_codes() -> str:
    """The codes and figures of every check as a page in Markdown."""
    lines = [
        "# Codes of findings",
        "",
        "`--json` has of each finding `check`, `code`, `causes` and, under `evidence`, figures. A code",
        "keeps its meaning; its sentence may change. Any check may also have:",
        "",
    ]
    table = read_messages()
    for name in (SHARED, *sorted(table.keys() - {SHARED})):
        entry = table[name]
        figures = "; ".join(f"`{one}` {what}" for one, what in entry.get("figures", {}).items())
        codes = [f"`{code}`" for code in entry.get("found", {})]
        causes = [f"`{code}`" for code in entry.get("causes", {})]
        lines += ["" if name == SHARED else f"\n## {name}\n", f"Finds {', '.join(codes)}."]
        lines += [f"Causes: {', '.join(causes)}."] * bool(causes)
        lines += [f"Figures: {figures}."] * bool(figures)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(list_codes())
