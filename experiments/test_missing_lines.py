"""experiments/missing_lines: which lines an answer lacks."""

from experiments.missing_lines import field_of, missing


def test_lines_that_an_answer_lacks_are_named_by_their_field():
    gold = (
        "Step 1: Navigate to http://x/y\nStep 2: Type 'Ana' into the 'Name' field\nStep 3: Click "
        "the 'Send' button"
    )
    answer = (
        "Step 1: Navigate to http://x/y\nStep 2: Check 'Ana' in the 'Name' group\nStep 3: Click "
        "the 'Send' button"
    )
    lacking = missing(gold, answer)
    assert lacking == {"Type 'Ana' into the 'Name' field": 1}
    assert [field_of(line) for line in (*lacking, "Navigate to http://x/y")] == [
        "Name",
        "Navigate to http://x/y",
    ]
    assert field_of("Type 'x' into the 'Owner's meals' field") == "Owner's meals"
    assert not missing(gold, "\n".join(reversed(gold.splitlines()))), "wherever they stand"
