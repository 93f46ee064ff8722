"""Tables on a narrow terminal."""

import io

from rich.console import Console

from plumbline.checks.check import Finding
from plumbline.checks.findings_output import summarise_counts
from plumbline.reports.run_comparison import sweep_table


def test_no_figure_of_a_sweep_is_cut_on_eighty_columns():
    values = {"before": 0.484, "after": 0.57, "difference": 0.086, "low": 0.037, "high": 0.137}
    values |= {"p_value": 0.0002, "n": 200}
    variant = "seed=0+controls.score_temperature=0.7"
    row = {"split": "test", "variant": variant, "kl": 0.0123, "greedy": values, "sampled": None}
    page = io.StringIO()
    Console(file=page, width=80).print(sweep_table([row]))
    shown = page.getvalue()
    for figure in ("0.484", "0.570", "+0.086 [+0.037, +0.137]", "< 0.001", "200", "0.0123"):
        assert figure in shown
    column = "".join(line[:10].strip() for line in shown.splitlines()[3:])
    assert variant in column


def test_several_findings_of_a_level_are_counted_in_the_plural():
    def counts(**of):
        findings = [
            Finding(level, "said", check="x") for level, count in of.items() for _ in range(count)
        ]
        return summarise_counts(findings, ["clear"], {})

    assert counts(fatal=2, warning=1, note=3).startswith("2 fatal, 1 warning, 3 notes; 1 of 2")
    assert counts(warning=2, note=1).startswith("2 warnings, 1 note; 1 of 2 ")
    assert "1 of 1 " in counts()
