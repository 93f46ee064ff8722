"""A control that environments of web pages share."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from plumbline.records import Example
from plumbline.seeds import generator


def shuffle_gold(
    examples: Sequence[Example],
    group_of: Callable[[Example], str],
    write: Callable[[Example, Example], str],
) -> list[str]:
    """Perfect answers for another example of the same group; "" where there is none.

    Args:
        examples: to be answered.
        group_of: names the form or page of one.
        write: the answer, for an example, that would be right for another one.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        groups[group_of(example)].append(index)
    answers = [""] * len(examples)
    for name, members in sorted(groups.items()):
        order = [
            members[place]
            for place in generator(0, "shuffled-gold", name).permutation(len(members))
        ]
        others = [*order[1:], order[0]] if len(order) > 1 else []
        for index, other in zip(order, others, strict=False):
            answers[index] = write(examples[index], examples[other])
    return answers
