"""Opens and draws from the tiny models of `conftest.family_folders`, whichever family they are
of."""

import json

import torch

from plumbline.api import check_policy, sample_trajectories
from plumbline.policies import open_policy
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.slots.options import SlotSampling
from plumbline.recipe import options_of
from plumbline.records import Sampling

SAMPLINGS = {
    "autoregressive": Sampling(max_tokens=8),
    "masked": MaskedSampling(max_tokens=8, steps=4, selector="plackett_luce"),
    "slots": SlotSampling(max_tokens=8, steps=2, selector="plackett_luce"),
    "flow": FlowSampling(max_tokens=4, steps=3),
}
CHATS = [
    [{"role": "user", "content": text}] for text in ("a b", "b b a b a", "a", "b a b a b a b b")
]
OWN = {
    "autoregressive": {},
    "masked": {"canvas": 8, "attention": "prefix"},
    "slots": {"canvas": 8, "slot": 2},
    "flow": {"canvas": 4, "attention": "prefix"},
}


def opened(family, folder, **options):
    section = options_of(family).model(name=str(folder), **{**OWN[family], **options})
    return open_policy(section, str(folder))


def drawn(policy, sampling=None, copies=3, seed=0):
    return [
        t
        for group in sample_trajectories(
            policy, CHATS, copies, sampling or SAMPLINGS[policy.family], seed
        )
        for t in group
    ]


def selections(trajectories):
    """Of each term, whether it is the choice of positions and no token."""
    return torch.tensor(
        [
            chosen
            for trajectory in trajectories
            for step in trajectory.transitions
            for chosen in [False] * len(step.tokens) + [True] * (step.selection is not None)
        ]
    )


def answers(policy, **how):
    return [(t.tokens if t.answer is None else t.answer).tolist() for t in drawn(policy, **how)]


def assert_both_laws_hold(
    policy, chat, sampling, draws, seed=0, gap=2e-5, least=0.0, most=1 + 1e-5, kinds=0
):
    """Scores are what was recorded, draws come as often as scored, and `least` of all that can come
    came."""
    laws = check_policy(policy, chat, sampling, draws=draws, seed=seed)
    assert laws.gap < gap
    assert laws.chi_square_p > 1e-3
    assert least < laws.mass < most
    assert laws.kinds > kinds


def move(policy, size=0.05, seed=1):
    """Change every weight that is trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_((size * torch.randn(weight.shape, generator=generator)).to(weight))


def redraw(policy, std, seed=0):
    """Draw every weight that is trained, each by the same seed."""
    for weight in policy.trainable().values():
        torch.nn.init.normal_(weight, std=std, generator=torch.Generator().manual_seed(seed))


def edit(path, **changes):
    """Set keys of a JSON file; None takes one away."""
    values = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    path.write_text(json.dumps(values))
