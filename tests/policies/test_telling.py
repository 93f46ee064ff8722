"""The autoregressive sampler tells each completion as soon as it has ended."""

import torch

from plumbline.policies.autoregressive import sampler
from plumbline.records import Sampling


def test_completions_are_told_when_they_end_and_each_once(tiny_policy, monkeypatch):
    order = []
    original = sampler.draw

    def draw(*arguments):
        order.append("token")
        return original(*arguments)

    monkeypatch.setattr(sampler, "draw", draw)
    monkeypatch.setattr(tiny_policy, "rows_at_once", 8)
    # Every token of the upper half of the vocabulary ends a completion, so that lengths differ.
    monkeypatch.setattr(tiny_policy.chat, "stop_ids", tuple(range(200, 300)))
    told = {}

    def tell(prompt, copy, text):
        assert (prompt, copy) not in told
        told[prompt, copy] = text
        order.append("text")

    chats = [[{"role": "user", "content": word}] for word in ("um", "dois", "três")]
    with torch.no_grad():
        drawn = tiny_policy.sample(chats, 4, Sampling(max_tokens=12), 5, tell)
    assert told == {(p, c): one.text for p, group in enumerate(drawn) for c, one in enumerate(group)}
    lengths = {one.num_tokens for group in drawn for one in group}
    assert len(lengths) > 2, lengths
    last_token = len(order) - 1 - order[::-1].index("token")
    assert order.index("text") < last_token - 2, "texts were told at the end only"
