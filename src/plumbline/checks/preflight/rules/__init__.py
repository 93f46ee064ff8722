"""What is looked at before a run, one subject a file. A new one is a file here and a line in `CHECKS`."""

from plumbline.checks.preflight.before import Check
from plumbline.checks.preflight.rules import checkpoint, files, lengths, overlap, reward, settings, size, template

CHECKS: tuple[Check, ...] = (
    *(overlap.EQUAL, overlap.ALIKE_ONES, lengths.CHECK, checkpoint.CHECK, template.CHECK, reward.CHECK),
    *(size.EVALUATIONS, size.COVERAGE, size.STRATA, size.GROUPS),
    *(settings.RATES, settings.LAWS, files.IGNORED, files.REPRODUCIBLE),
)
