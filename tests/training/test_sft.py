"""SFT: the loss is transformers' own, on answers only; batches cover every record; truncation is
loud."""

import numpy as np
import pytest
import torch

from plumbline.errors import DataError
from plumbline.policies.policy import Demonstration
from plumbline.recipe import OptimiserSection, SftSection
from plumbline.runs.run import Run
from plumbline.training.prompts import Source
from plumbline.training.sft import _backward, cut_microbatches, epoch_batches, train_sft
from tests.toy import ToyTask
from tests.training.toy_runs import fresh_policy, messages, toy_recipe

CHAT = [
    {"role": "system", "content": "extraia"},
    {"role": "user", "content": "não recomendo"},
    {"role": "assistant", "content": "nota 10, sim"},
]


def train_alone(policy, demonstrations, section, run):
    """The demonstrations of one task."""
    source = Source.of(ToyTask({}), demonstrations)
    train_sft(policy, {"": [[one] for one in demonstrations]}, section, run, source=source)


def test_the_loss_is_transformers_loss_on_the_answer_alone(tiny_folder):
    policy = fresh_policy(tiny_folder)
    shorter = [*CHAT[:2], {"role": "assistant", "content": "sim"}]
    batch = [policy.demonstrate(chat) for chat in (CHAT, shorter)]
    ours = _backward(policy, cut_microbatches(batch, 10_000), 0)
    gradients = {name: weight.grad.clone() for name, weight in policy.trainable().items()}

    longest = max(len(d.tokens) for d in batch)
    ids, labels = torch.zeros(2, longest, dtype=torch.long), torch.full((2, longest), -100)
    mask = torch.zeros(2, longest, dtype=torch.long)
    for row, d in enumerate(batch):
        ids[row, : len(d.tokens)] = torch.tensor(d.tokens)
        mask[row, : len(d.tokens)] = 1
        labels[row, : len(d.tokens)] = torch.where(
            torch.tensor(d.is_target), torch.tensor(d.tokens), -100
        )
    policy.model.zero_grad()
    theirs = policy.model(ids, attention_mask=mask, labels=labels).loss
    theirs.backward()
    assert ours == pytest.approx(theirs.item(), abs=1e-5)
    for name, weight in policy.trainable().items():
        torch.testing.assert_close(gradients[name], weight.grad, atol=1e-5, rtol=1e-3)


def shown(demonstration, is_target):
    return [
        token
        for token, target in zip(demonstration.tokens, demonstration.is_target, strict=True)
        if target == is_target
    ]


def test_targets_are_the_answer_and_the_token_that_ends_it(tiny_policy):
    demonstration = tiny_policy.demonstrate(CHAT)
    targets = shown(demonstration, is_target=True)
    tokenizer = tiny_policy.chat.tokenizer
    assert tokenizer.decode(targets) == "nota 10, sim<|im_end|>"
    before = shown(demonstration, is_target=False)
    assert before == tiny_policy.chat.prompt(CHAT[:2]), (
        "training shows exactly what sampling starts from"
    )


def test_of_several_answers_the_last_is_the_target_and_the_rest_its_prompt(tiny_policy):
    chat = [
        *CHAT,
        {"role": "user", "content": "e agora"},
        {"role": "assistant", "content": "ótima"},
    ]
    demonstration = tiny_policy.demonstrate(chat)
    tokenizer = tiny_policy.chat.tokenizer
    targets = shown(demonstration, is_target=True)
    assert tokenizer.decode(targets) == "ótima<|im_end|>"
    assert list(demonstration.tokens[: -len(targets)]) == tiny_policy.chat.prompt(chat[:-1])
    whole = tokenizer.apply_chat_template(chat, tokenize=False).rstrip("\n")
    assert tokenizer.decode(demonstration.tokens) == whole


def test_a_demonstration_longer_than_the_context_is_an_error_unless_allowed(
    tiny_policy, tmp_path, tiny_folder
):
    long = [*CHAT[:2], {"role": "assistant", "content": "sim " * 400}]
    with pytest.raises(DataError, match=r" 840 tokens .* context .* 256\n"):
        tiny_policy.demonstrate(long)
    cut = tiny_policy.demonstrate(long, allow_truncation=True)
    assert len(cut.tokens) == 256
    assert cut.truncated
    policy = fresh_policy(tiny_folder)
    with Run.start(toy_recipe(), tmp_path / "run") as run:
        train_alone(policy, [cut, policy.demonstrate(CHAT)], SftSection(steps=1), run)
    assert run.rows("sft")[0]["train/frac_truncated"] == 0.5
    (said,) = messages(run, "truncated")
    assert said.startswith("1 of 2 demonstrations ")


def test_an_epoch_is_every_demonstration_once_with_neighbours_in_length():
    rng = np.random.default_rng(0)
    demonstrations = [
        Demonstration(tuple(range(int(n))), (True,) * int(n))
        for n in rng.integers(1, 300, size=203)
    ]
    batches = epoch_batches(demonstrations, 8, np.random.default_rng(1))
    assert sorted(index for batch in batches for index in batch) == list(range(203))
    assert [len(batch) for batch in batches[:-1]] == [8] * 25
    padded = sum(
        max(len(demonstrations[i].tokens) for i in batch) * len(batch) for batch in batches
    )
    real = sum(len(d.tokens) for d in demonstrations)
    assert padded / real < 1.15
    assert batches != epoch_batches(demonstrations, 8, np.random.default_rng(2))


def test_it_learns_what_it_is_shown(tiny_folder, tmp_path):
    policy = fresh_policy(tiny_folder)
    shown = [
        policy.demonstrate(
            [{"role": "user", "content": w}, {"role": "assistant", "content": w[::-1]}]
        )
        for w in ("sim", "nota", "dia")
    ]
    section = SftSection(epochs=40, batch_size=2, optimiser=OptimiserSection(learning_rate=1e-2))
    with Run.start(toy_recipe(), tmp_path / "run") as run:
        train_alone(policy, shown, section, run)
    losses = [row["train/loss"] for row in run.rows("sft")]
    assert len(losses) == 80
    assert losses[-1] < 0.1 < losses[0]


def test_no_demonstrations_is_an_error(tiny_policy, tmp_path):
    with (
        Run.start(toy_recipe(), tmp_path / "run") as run,
        pytest.raises(DataError, match="empty"),
    ):
        train_alone(tiny_policy, [], SftSection(steps=1), run)
