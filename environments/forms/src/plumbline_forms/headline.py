"""What evaluations of the forms task put first, by rubric; docs/forms-eval.md says what each column is."""

from plumbline.records import Figure, Headline
from plumbline_forms.rubric import KIND

RECEIVED = Headline(
    figures=(
        Figure(key="field_accuracy", title="Field accuracy", part="fields"),
        Figure(key="exact_form_rate", title="Exact form", part="exact", rate=True),
        Figure(key="submitted_rate", title="Submitted", part="submitted", rate=True),
    ),
    stratum="form",
    breakdown="kind",
    prefix=KIND,
    limits={
        "blank": 0.05,
        "submit-only": 0.05,
        "type-after-submit": 0.05,
        "constant": 0.15,
        "shuffled-gold": 0.15,
        "spray": 0.15,
    },
)
SEED_V6 = Headline(
    figures=(
        Figure(key="claimed_accuracy", title="Claimed accuracy", part="field_accuracy"),
        Figure(key="success_text_rate", title="Success text", part="task_completion", rate=True),
        Figure(key="executed", title="Executed", part="execution_completeness"),
    ),
    stratum="form",
    note="seed-v6: the rubric of the forms log's tables, which never looks at what the server received",
)
