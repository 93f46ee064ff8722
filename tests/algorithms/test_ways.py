"""Rejection sampling, DPO, distillation: by enumeration on a toy vocabulary, and beside TRL."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from conftest import make_sharp
from plumbline.algorithms.dpo import Dpo
from plumbline.algorithms.rft import Rft
from plumbline.api import sample_trajectories
from plumbline.errors import DataError, RecipeError
from plumbline.recipe import TeacherSection, parse_recipe
from plumbline.records import (
    Example,
    Group,
    Outcome,
    Rollout,
    Sampling,
    Score,
    Verdict,
    rollouts_of,
)
from plumbline.training.rl import teacher_chat, weigh_rollouts
from tests.algorithms.batches import gradients_of
from tests.policies.families import move
from tests.training.toy_runs import fresh_policy, interrupt, train_toy

CHATS = [
    [{"role": "user", "content": "o produto chegou"}],
    [{"role": "user", "content": "não recomendo, 12 dias " * 2}],
]
G, LIMIT = 4, 12
SAMPLING = Sampling(temperature=0.8, max_tokens=LIMIT)
REWARDS = ([0.1, 0.9, 0.5, 0.2], [1.0, 0.0, 0.0, 1.0])


@pytest.fixture(scope="session")
def tiny_deep(tmp_path_factory):
    """The tiny model's tokenizer with two layers more."""
    return make_sharp(tmp_path_factory.mktemp("models") / "deep", layers=4, seed=1)


def recipe_of(algorithm, **rl):
    rl = {
        "steps": 4,
        "group_size": G,
        "algorithm": algorithm,
        "optimiser": {"learning_rate": 1e-9},
        **rl,
    }
    return parse_recipe({"name": "x", "model": {"name": "m"}, "rl": rl})


def group_of(rewards, texts=None, trajectories=None):
    """A group with these rewards (None: not judged)."""
    example = Example(id="a", messages=(), gold="gold", reference={})
    texts = texts or [f"answer {index}" for index in range(len(rewards))]
    given = trajectories or [None] * len(rewards)
    rollouts = []
    for reward, text, turn in zip(rewards, texts, given, strict=True):
        score = None if reward is None else Score(total=reward, parts={}, rubric="r", readings={})
        turns = (
            (turn,) if turn is not None else (type("Turn", (), {"text": text, "num_tokens": 3})(),)
        )
        rollouts.append(Rollout(turns=turns, verdict=Verdict(Outcome(how="strict"), score)))
    return Group(example=example, rollouts=tuple(rollouts))


@pytest.fixture
def drawn(tiny_folder):
    """A policy that has moved from its reference, and two groups that it drew."""
    policy = fresh_policy(tiny_folder)
    policy.keep_reference()
    move(policy, 0.02, seed=3)
    groups = sample_trajectories(policy, CHATS, G, SAMPLING, seed=1)
    return policy, [group_of(r, trajectories=g) for r, g in zip(REWARDS, groups, strict=True)]


def gradients(policy, groups, recipe, monkeypatch, teacher=None, encode=None):
    """Loss and gradients of an update, which is caught before its step."""
    section = recipe.rl
    weighted = weigh_rollouts(groups, section.algorithm, minibatch=section.minibatch, encode=encode)
    return gradients_of(policy, weighted, recipe, teacher)


# -- which answers are picked ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "rewards", "texts", "kept"),
    [
        ({}, [0.1, 0.9, 0.5, 0.9], None, [1]),  # a tie: the first
        ({"kept": 2}, [0.1, 0.9, 0.5, 0.9], None, [1, 3]),
        ({"kept": 2}, [0.1, 0.9, 0.8, 0.9], "abcb", [1, 2]),  # a text counts once
        ({"kept": 3}, [0.1, 0.9, 0.2, None], None, [1]),  # no better than the mean
        ({}, [0.5, 0.5, 0.5, 0.5], None, []),
        ({}, [None, None, None, None], None, []),
        ({"least": 1.0}, [0.1, 0.9, 0.5, 0.9], None, []),
        ({"least": 1.0, "kept": 8}, [1.0, 1.0, 1.0, 1.0], "aabc", [0, 2, 3]),
        ({"unverified": True}, [0.1, 0.9, 0.5, 0.9], None, [0]),
        ({"unverified": True, "kept": 9}, [None, 0.9, 0.5, 0.9], "aabc", [0, 2, 3]),
    ],
)
def test_the_best_are_kept(options, rewards, texts, kept):
    found = Rft(**options).advantages(group_of(rewards, texts and list(texts)))
    assert np.flatnonzero(found).tolist() == kept
    assert set(found) <= {0.0, 1.0}


def test_a_pair_is_the_best_and_the_worst():
    assert Dpo().advantages(group_of([0.5, 0.9, None, 0.1, 0.9, 0.1])).tolist() == [
        0,
        1,
        0,
        -1,
        0,
        0,
    ]
    assert not Dpo().advantages(group_of([0.5, 0.5])).any()
    assert not Dpo().advantages(group_of([None, None])).any()


def test_what_the_teacher_is_told():
    example = Example(
        id="a", messages=({"role": "user", "content": "ask"},), gold="gold", reference={}
    )
    hinted = [{"role": "user", "content": "ask\n\nIt is gold."}]
    assert teacher_chat(example, TeacherSection(hint="It is {gold}.")) == hinted
    *before, answer, again = teacher_chat(example, TeacherSection(again="Again."))
    assert (before, answer["content"], again["content"]) == ([*example.messages], "gold", "Again.")
    with pytest.raises(DataError, match="no gold answer"):
        teacher_chat(replace(example, gold=None), TeacherSection(again="Again."))


# -- losses ----------------------------------------------------------------------------------------


def logits_of(model, trajectory, prompt=None):
    """Logits [T, V] at the answer's tokens, by the model's own forward pass, at the distribution's
    temperature."""
    prompt = trajectory.prompt if prompt is None else prompt
    ids = torch.from_numpy(np.concatenate([prompt, trajectory.tokens]))[None]
    return model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1] / SAMPLING.temperature


def turns_of(groups, picked):
    return [
        r.turns[0]
        for g, row in zip(groups, picked, strict=True)
        for r, p in zip(g.rollouts, row, strict=True)
        if p
    ]


def autograd(policy, loss):
    found = torch.autograd.grad(loss, list(policy.trainable().values()), allow_unused=True)
    return {
        n: torch.zeros_like(w) if g is None else g
        for (n, w), g in zip(policy.trainable().items(), found, strict=True)
    }


def assert_same(ours, wanted):
    assert max(float(g.abs().max()) for g in wanted.values()) > 1e-4
    for name, gradient in wanted.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-5, rtol=1e-3)


def test_rejection_sampling_is_sft_on_what_was_kept(drawn, monkeypatch):
    policy, groups = drawn
    update, ours = gradients(policy, groups, recipe_of({"name": "rft", "kept": 2}), monkeypatch)
    kept = turns_of(groups, ([0, 1, 1, 0], [1, 0, 0, 1]))
    losses = [
        functional.cross_entropy(
            logits_of(policy.model, t), torch.from_numpy(t.tokens), reduction="sum"
        )
        for t in kept
    ]
    loss = sum(losses) / sum(t.num_tokens for t in kept)
    assert update.loss == pytest.approx(float(loss), abs=1e-5)
    assert_same(ours, autograd(policy, loss))


def test_minibatches_are_batches_of_their_own(drawn, monkeypatch):
    """The last of two minibatches has the gradient that its group alone would have."""
    policy, groups = drawn
    for algorithm in ("rft", "grpo", {"name": "grpo", "normaliser": "dapo"}, "dpo"):
        _, ours = gradients(policy, groups, recipe_of(algorithm, minibatch=1), monkeypatch)
        _, alone = gradients(policy, groups[1:], recipe_of(algorithm), monkeypatch)
        assert_same(ours, alone)


def test_dpo_beside_trl(drawn, monkeypatch, tmp_path, tiny_folder):
    """Its loss from our sequences' log-probabilities, by TRL's own trainer, and its gradient."""
    trl = pytest.importorskip("trl", reason="TRL is the peer of these tests; pip install '.[dev]'")
    from datasets import Dataset
    from transformers import AutoTokenizer

    policy, _ = drawn  # TRL's DPO has no temperature
    at_one = sample_trajectories(policy, CHATS, G, Sampling(max_tokens=LIMIT), seed=1)
    groups = [group_of(r, trajectories=g) for r, g in zip(REWARDS, at_one, strict=True)]
    update, ours = gradients(policy, groups, recipe_of({"name": "dpo", "beta": 0.3}), monkeypatch)
    best, worst = (
        turns_of(groups, ([0, 1, 0, 0], [1, 0, 0, 0])),
        turns_of(groups, ([1, 0, 0, 0], [0, 1, 0, 0])),
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    rows = [{"prompt": "a", "chosen": "b", "rejected": "c"}]
    own = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none"}
    args = trl.DPOConfig(output_dir=str(tmp_path), beta=0.3, **own)
    peer = trl.DPOTrainer(
        model=policy.model, ref_model=policy._reference, args=args, processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip
    features = [
        {
            "prompt_ids": b.prompt.tolist(),
            "chosen_ids": b.tokens.tolist(),
            "rejected_ids": w.tokens.tolist(),
        }
        for b, w in zip(best, worst, strict=True)
    ]
    loss = peer.compute_loss(peer.model, peer.data_collator(features))
    assert update.loss == pytest.approx(float(loss), abs=1e-5)
    assert abs(update.figures["train/reward_margin"]) > 1e-3, "the reference should differ"
    assert_same(ours, autograd(policy, loss))


def test_shuffled_pairs_are_pairs_that_are_turned_round(drawn):
    _, groups = drawn
    seen = set()
    for seed in range(8):
        shuffled = weigh_rollouts(groups, Dpo(), minibatch=1, shuffle=np.random.default_rng(seed))
        signs = [each.advantage for each in rollouts_of(shuffled)]
        assert np.abs(signs).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
        assert sum(signs[:4]) == sum(signs[4:]) == 0
        seen.add(tuple(signs))
    assert len(seen) > 1


@pytest.mark.parametrize(("kl", "beta"), [("closed", 1.0), ("forward", 0.0)])
@pytest.mark.parametrize("who", ["larger", "hint", "present"])
def test_distillation_by_enumeration_and_beside_trl(drawn, tiny_deep, monkeypatch, kl, beta, who):
    """The KL summed over every token of the vocabulary, with TRL's generalised JSD at its two ends,
    and its SDFT."""
    policy, groups = drawn
    told = policy.encode([{"role": "user", "content": "a resposta certa: gold"}])
    teacher = fresh_policy(tiny_deep) if who == "larger" else None
    section = (
        {"model": str(tiny_deep)}
        if teacher
        else {"hint": "{gold}", "weights": "start" if who == "hint" else who}
    )
    recipe = recipe_of("distil", beta=1, kl=kl, teacher=section)
    encode = None if teacher else lambda _: told
    update, ours = gradients(policy, groups, recipe, monkeypatch, teacher, encode)

    turns = [r.turns[0] for g in groups for r in g.rollouts]
    model = teacher.model if teacher else policy.model if who == "present" else policy._reference
    student = torch.cat([logits_of(policy.model, t) for t in turns])
    with torch.no_grad():
        theirs = torch.cat([logits_of(model, t, None if teacher else told) for t in turns])
    p, q = student.log_softmax(-1), theirs.log_softmax(-1)
    loss = ((p.exp() * (p - q)) if kl == "closed" else (q.exp() * (q - p))).sum() / len(student)
    assert update.loss == pytest.approx(float(loss), abs=1e-5)
    assert_same(ours, autograd(policy, loss))

    pytest.importorskip("trl", reason="TRL is the peer of these tests; pip install '.[dev]'")
    from trl.experimental.gkd import GKDTrainer
    from trl.experimental.sdft.loss_utils import compute_divergence

    student = torch.cat([logits_of(policy.model, t) for t in turns])
    peer = GKDTrainer.generalized_jsd_loss(
        student[None], theirs[None], torch.zeros(1, len(student)), beta=beta
    )
    assert update.loss == pytest.approx(
        float(peer) if peer.dim() == 0 else float(peer.sum()), abs=1e-5
    )
    assert_same(ours, autograd(policy, peer))
    own = compute_divergence(student.log_softmax(-1), q, beta)
    assert update.loss == pytest.approx(float(own.sum() / len(student)), abs=1e-5)


@pytest.mark.parametrize("kl", ["closed", "sampled"])
def test_a_hint_is_for_the_first_turn_and_later_ones_keep_their_prompts(drawn, monkeypatch, kl):
    policy, (first, second) = drawn
    pairs = zip(first.rollouts, second.rollouts, strict=True)
    both = replace(first, rollouts=tuple(replace(a, turns=(*a.turns, *b.turns)) for a, b in pairs))
    told = policy.encode([{"role": "user", "content": "a resposta certa: gold"}])
    recipe = recipe_of("distil", beta=1, kl=kl, teacher={"hint": "{gold}"})
    seen, score, compare = [], policy.score, policy.compare

    def scored(turns, *, reference=False, **options):
        seen.extend(turns if reference else ())
        return score(turns, reference=reference, **options)

    def compared(turns, hinted, *others, **options):
        seen.extend(hinted)
        return compare(turns, hinted, *others, **options)

    monkeypatch.setattr(policy, "score", scored)
    monkeypatch.setattr(policy, "compare", compared)
    gradients(policy, [both], recipe, monkeypatch, encode=lambda _: told)
    prompt_of = {each.text: each.prompt.tolist() for each in seen}
    assert [prompt_of[r.turns[0].text] for r in both.rollouts] == [told.tolist()] * G
    assert [prompt_of[r.turns[1].text] for r in both.rollouts] == [
        r.turns[1].prompt.tolist() for r in both.rollouts
    ]


def test_a_sampled_kl_to_a_teacher_has_the_closed_ones_mean(drawn, tiny_deep, monkeypatch):
    """Its estimate over many answers, within what they scatter."""
    policy, _ = drawn
    teacher = fresh_policy(tiny_deep)
    answers = [
        group_of([0.0] * 64, trajectories=g)
        for g in sample_trajectories(policy, CHATS, 64, SAMPLING, seed=2)
    ]
    found = {}
    for kl in ("closed", "sampled"):
        recipe = recipe_of(
            "distil", beta=1, kl=kl, teacher={"model": str(tiny_deep)}, group_size=64
        )
        found[kl], _ = gradients(policy, answers, recipe, monkeypatch, teacher)
    assert found["sampled"].loss == pytest.approx(found["closed"].loss, rel=0.1)


@pytest.mark.parametrize(
    "rl",
    [
        {"algorithm": "rft", "inner_epochs": 2, "minibatch": 1},
        {"algorithm": "dpo", "inner_epochs": 2},
        {
            "algorithm": "distil",
            "beta": 1,
            "kl": "closed",
            "group_size": 1,
            "teacher": {"hint": "{gold}"},
        },
        {"algorithm": "grpo", "minibatch": 1, "inner_epochs": 2},
    ],
)
def test_a_way_learns_and_resumes_to_the_bit(tiny_folder, tmp_path, monkeypatch, rl):
    """Four steps, and two and two: the same weights and metrics, and what only the way has."""
    whole, run = train_toy(tiny_folder, tmp_path / "whole", checkpoint_every=2, **rl)
    interrupt(monkeypatch, tiny_folder, tmp_path / "halves", checkpoint_every=1, **rl)
    halves, again = train_toy(
        tiny_folder, tmp_path / "halves", checkpoint_every=1, resume=True, **rl
    )
    for name, weight in whole.trainable().items():
        assert torch.equal(weight, halves.trainable()[name])
    start = fresh_policy(tiny_folder).trainable()
    assert any(not torch.equal(weight, start[name]) for name, weight in whole.trainable().items())
    rows = run.rows("rl")
    assert rows == again.rows("rl")
    assert len(rows) == 4
    if rl["algorithm"] in {"rft", "dpo"}:
        assert any(0 < row["train/frac_prompts_kept"] <= 1 for row in rows)
    if rl["algorithm"] == "dpo":
        assert all("train/reward_margin" in row for row in rows)
    if rl["algorithm"] == "distil":
        assert all(
            row["train/kl_teacher"] > 0 and row["train/frac_reward_zero_std"] is None
            for row in rows
        )


@pytest.mark.parametrize(
    ("rl", "message"),
    [
        ({"algorithm": "distil"}, "give rl.teacher, and rl.beta: 1"),
        (
            {"algorithm": "distil", "beta": 1, "teacher": {}},
            r"rl\.teacher: .* rl\.teacher\.model, .* rl\.teacher\.hint\b",
        ),
        (
            {"beta": 1, "teacher": {"hint": "x", "again": "y"}},
            r"rl\.teacher\.hint .* again .* one\b",
        ),
        ({"teacher": {"hint": "x"}}, r"rl\.teacher .* KL .* rl\.beta\n"),
        ({"algorithm": "rft", "beta": 0.1}, r"rft .* KL: .* rl\.beta\n"),
        ({"algorithm": "rft", "off_policy_steps": 1}, r"rft .* ratio .* rl\.off_policy_steps\b"),
        ({"algorithm": "rft", "group_size": 1}, "rl.group_size is 2 at least"),
        (
            {"beta": 1, "teacher": {"model": "m", "weights": "present"}},
            "leave out rl.teacher.model",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(rl, message):
    with pytest.raises(RecipeError, match=message):
        recipe_of(rl.pop("algorithm", "grpo"), **rl)
