"""Every family: seeds, ratios, groupings, recomputing, references, saving, watching, and laws that
do not fit."""

import copy
import shutil
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.config.imports import import_own
from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies.canvas import HIDDEN, answer_of
from plumbline.policies.opening import saved_settings
from plumbline.policies.policy import Policy
from plumbline.policies.slots.packing import Grid, packed_length
from plumbline.recipe import LoraSection, options_of
from plumbline.recipe.families import ABILITIES
from plumbline.records import Request
from tests.policies.families import CHATS, SAMPLINGS, answers, drawn, edit, move, opened
from tests.policies.slots.models import MASK

FAMILIES = tuple(SAMPLINGS)
LORA = LoraSection(rank=2, alpha=4)
VARIANTS = {family: (family, {}, {}) for family in FAMILIES} | {
    "masked, full": ("masked", {"attention": "full"}, {"selector": "low_confidence"}),
    "masked, learned temperature": ("masked", {"learned_temperature": True}, {}),
    "flow, marginal": ("flow", {}, {"kernel": "marginal"}),
    "flow of masks": ("flow", {"attention": "full"}, {}),
    "flow of a backbone": ("flow", {"conditioning": 8}, {}),
}
BUDGET = {"float32": 2e-5, "bfloat16": 0.1}
"""Nats a term: what another grouping of a batch may change (bfloat16 weights, log-probabilities in
float32)."""
CLOSE = {"atol": 1e-5, "rtol": 1e-4}
ADAPTED = [
    (name, None) for name in (*FAMILIES, "masked, learned temperature", "flow of a backbone")
]
ADAPTED += [(name, LORA) for name in ("autoregressive", "masked", "slots", "flow of a backbone")]
"""Published flow networks have no adapters."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_declares_what_it_can(family):
    kind = import_own(options_of(family).policy, "policy family")
    assert options_of(family).can == {
        name for name in ABILITIES if getattr(kind, name) is not getattr(Policy, name)
    }


KEPT: dict[str, Policy] = {}


def fresh(family, folder, **options):
    """A policy whose weights are its own; each is opened once."""
    key = str((family, folder, sorted(options.items(), key=str)))
    if key not in KEPT:
        KEPT[key] = opened(family, folder, **options)
    return copy.deepcopy(KEPT[key])


@pytest.fixture
def variant(family_folders):
    """Opens a variant by its name."""

    def make(name, **options):
        family, own, _ = VARIANTS[name]
        return fresh(family, family_folders.get(name, family_folders[family]), **{**own, **options})

    return make


def sampling_of(name):
    family, _, changes = VARIANTS[name]
    return replace(SAMPLINGS[family], **changes)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_draws_the_same_and_another_does_not(variant, family):
    policy = variant(family)
    one, same, other = (answers(policy, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert len({str(answer) for answer in one}) > 4, "copies of a prompt differ"


@pytest.mark.parametrize("dtype", sorted(BUDGET))
@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_before_an_update_every_ratio_is_exactly_one(variant, family, dtype, recomputed):
    """Old and new log-probabilities of one pass: bitwise equal, with and without gradient, after an
    idle step too."""
    policy = variant(family, dtype=dtype, gradient_checkpointing=recomputed)
    trajectories = drawn(policy)
    with torch.no_grad():
        old = policy.score(trajectories).logprobs
    new = policy.score(trajectories).logprobs
    assert torch.equal(old, new.detach())
    new.sum().backward()
    torch.optim.AdamW(list(policy.trainable().values()), lr=0.0, weight_decay=0.0).step()
    assert torch.equal(policy.score(trajectories).logprobs.detach(), old)


@pytest.mark.parametrize("dtype", sorted(BUDGET))
@pytest.mark.parametrize("name", VARIANTS)
def test_grouping_moves_log_probabilities_within_a_budget(variant, name, dtype):
    """Alone and among others, in passes cut anywhere, and each step by itself."""
    policy = variant(name, dtype=dtype)
    trajectories = drawn(policy, sampling_of(name))
    with torch.no_grad():
        together = policy.score(trajectories)
        parts = policy.batches(trajectories, 300)
        steps = [replace(t, transitions=(step,)) for t in trajectories for step in t.transitions]
        others = [
            torch.cat([policy.score([t]).logprobs for t in trajectories]),
            torch.cat(
                [policy.score([trajectories[index] for index in part]).logprobs for part in parts]
            ),
            policy.score(steps).logprobs,
        ]
    assert together.logprobs.dtype == torch.float32
    assert 1 < len(parts) < len(trajectories)
    for other in others:
        assert (other - together.logprobs).abs().max() < BUDGET[dtype]
    assert (together.recorded - together.logprobs).abs().max() < BUDGET[dtype]


TAKES = {
    "autoregressive": lambda trajectory: trajectory.num_tokens,
    "masked": lambda trajectory: 4 * 8,  # a canvas a step
    "slots": lambda trajectory: packed_length(trajectory, Grid.of(SAMPLINGS["slots"], 2), MASK),
}
"""Tokens of a trajectory in a pass, behind its prompt."""


@pytest.mark.parametrize("family", TAKES)
def test_batches_keep_order_and_respect_the_budget(variant, family):
    policy = variant(family)
    trajectories = drawn(policy, copies=4)
    for budget in (1, 120, 10**6):
        parts = policy.batches(trajectories, budget)
        assert [index for part in parts for index in part] == list(range(16))
        for part in parts:
            prompts = {
                trajectories[index].prompt.tobytes(): len(trajectories[index].prompt)
                for index in part
            }
            tokens = sum(prompts.values()) + sum(
                TAKES[family](trajectories[index]) for index in part
            )
            assert tokens <= budget or len(part) == 1
            assert len(prompts) == 1 or family != "slots"
    assert len(policy.batches(trajectories, 10**6)) < 16 == len(policy.batches(trajectories, 1))


@pytest.mark.parametrize("name", [*FAMILIES, "masked, full", "flow of a backbone"])
def test_gradient_checkpointing_changes_no_gradient(variant, name):
    """Of the divergence, too. A cache that grew in every forward pass would be twice as long in the
    recomputed one."""
    gradients = []
    for checkpointing in (False, True, "auto"):
        policy = variant(name, gradient_checkpointing=checkpointing)
        assert policy.recompute() is (checkpointing == "auto"), (
            "where it is left to the memory, once"
        )
        assert policy.recompute() is False
        policy.keep_reference()
        terms = policy.score(
            drawn(policy, sampling_of(name), copies=2), divergence=name != "autoregressive"
        )
        (
            terms.logprobs.sum() + (0 if terms.divergence is None else terms.divergence.sum())
        ).backward()
        gradients.append({key: weight.grad for key, weight in policy.trainable().items()})
    for key, gradient in gradients[0].items():
        for other in gradients[1:]:
            torch.testing.assert_close(
                other[key], gradient, **({"atol": 0, "rtol": 0} if "masked" in name else CLOSE)
            )


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "flow"])
def test_dropout_is_off_whatever_the_config_says(variant, family, family_folders, tmp_path):
    folder = shutil.copytree(family_folders[family], tmp_path / "dropping")
    edit(folder / "config.json", attention_dropout=0.5)
    policy = opened(family, folder)
    policy.model.train()
    trajectories = drawn(policy)
    wanted = variant(family).score(trajectories).logprobs
    torch.testing.assert_close(policy.score(trajectories).logprobs, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("moved", [False, True], ids=["fresh", "moved"])
@pytest.mark.parametrize(("name", "lora"), ADAPTED)
def test_a_reference_stays_as_it_was_and_the_divergence_is_from_it(variant, name, lora, moved):
    """It is the model, or the adapter, that RL began with; with adapters there is no second
    model."""
    policy, closed = variant(name, lora=lora), name != "autoregressive"
    close = 1e-6 if lora is None else 1e-5
    if moved:
        move(policy)
    trajectories = drawn(policy, sampling_of(name))
    with pytest.raises(ValueError, match="keep_reference"):
        policy.score(trajectories, reference=True)
    terms, names = policy.score(trajectories), set(policy.trainable())
    began = terms.logprobs.detach()
    torch.testing.assert_close(began, terms.recorded, atol=2e-5, rtol=0)
    policy.keep_reference()
    if closed:
        assert policy.score(trajectories, divergence=True).divergence.abs().max() < close
    if lora is None:
        assert torch.equal(policy.score(trajectories, reference=True).logprobs, began)
    move(policy, seed=2)
    terms = policy.score(trajectories, divergence=closed)
    reference = policy.score(trajectories, reference=True).logprobs
    torch.testing.assert_close(reference, began, atol=close, rtol=0)
    assert not reference.requires_grad
    assert (terms.logprobs - began).abs().max() > 0.01
    torch.testing.assert_close(policy.score(trajectories).logprobs, terms.logprobs)
    assert set(policy.trainable()) == names
    if lora is not None:
        plain = [
            weight.numel() for key, weight in policy.model.named_parameters() if "lora" not in key
        ]
        assert sum(plain) == sum(weight.numel() for weight in variant(name).model.parameters())
    if closed:
        assert terms.divergence.shape == (sum(len(t.transitions) for t in trajectories),)
        assert terms.divergence.requires_grad
        assert terms.divergence.min() > -1e-6
        assert terms.divergence.sum() > 1e-3


@pytest.mark.parametrize(("name", "lora"), ADAPTED)
def test_a_saved_model_is_the_same_model(variant, tmp_path, name, lora):
    policy, (family, own, _) = variant(name, lora=lora), VARIANTS[name]
    move(policy)
    policy.save(tmp_path / "saved", {"stage": "test"})
    assert not list(tmp_path.glob(".saved*"))
    assert (tmp_path / "saved" / "plumbline.json").is_file()
    assert saved_settings(str(tmp_path / "saved")).get("family", "autoregressive") == family
    again = opened(family, tmp_path / "saved", lora=lora, **own)
    assert set(policy.trainable()) == set(again.trainable())
    assert answers(again) == answers(policy)
    if family in {"masked", "slots"}:
        assert (
            opened(family, tmp_path / "saved", lora=lora, **{**own, "canvas": None}).canvas
            == policy.canvas
        )


@pytest.mark.parametrize("family", ["masked", "slots"])
def test_the_mask_token_may_stand_in_the_config_and_must_have_an_embedding(
    family, family_folders, tmp_path
):
    folder = shutil.copytree(family_folders[family], tmp_path / "model")
    edit(folder / "tokenizer_config.json", mask_token=None)
    with pytest.raises(ModelError, match="no mask token"):
        opened(family, folder)
    edit(folder / "config.json", mask_token_id=3)
    assert opened(family, folder).mask_id == 3
    edit(folder / "config.json", mask_token_id=999_999)
    with pytest.raises(ModelError, match="999999"):
        opened(family, folder)


CANVASES = ("masked", "slots", "flow")
WATCHED = [(family, {}) for family in CANVASES]
WATCHED += [
    ("masked", {"steps": 8, "selector": "leftmost"}),
    ("slots", {"selector": "threshold", "temperature": 0.0}),
]


@pytest.mark.parametrize(("family", "changes"), WATCHED, ids=str)
def test_who_watches_a_sampler_sees_each_canvas_and_changes_no_draw(variant, family, changes):
    policy, sampling = variant(family), replace(SAMPLINGS[family], **changes)
    requests = [Request((copy,), CHATS[0], sampling) for copy in range(3)]
    unwatched = {request.key: trajectory.text for request, trajectory in policy.sample(requests)}
    seen = defaultdict(list)
    policy.watch = lambda key, canvas: seen[key].append(canvas.copy())
    watched = {request.key: trajectory for request, trajectory in policy.sample(requests)}
    assert {key: one.text for key, one in watched.items()} == unwatched
    for key, trajectory in watched.items():
        shown = seen[key]
        assert len(shown) == len(trajectory.transitions)
        for canvas, following in zip(shown[:-1], trajectory.transitions[1:], strict=True):
            # A row's leftover places may be filled between two steps, so what a step put there is
            # what counts.
            kept = following.state != policy.mask_id if policy.mask_id is not None else slice(None)
            assert np.array_equal(canvas[kept], following.state[kept])
        assert np.array_equal(answer_of(shown[-1], policy.chat.stop_ids)[0], trajectory.answer)


@pytest.mark.parametrize("family", CANVASES)
def test_hidden_places_are_shown_and_what_lies_behind_the_end_is_not(variant, family):
    policy = variant(family)
    end, hidden = policy.chat.end_of_turn, policy.mask_id
    words = policy.chat.tokenizer("a b", add_special_tokens=False)["input_ids"]
    text = policy.chat.text(words)
    assert policy.render_canvas(np.array([*words, end, words[0]])) == text
    if hidden is not None:
        canvas = np.array([hidden, *words, hidden, hidden, end, hidden])
        assert policy.render_canvas(canvas) == HIDDEN + text + 2 * HIDDEN


LONG = [[{"role": "user", "content": "a " * 130}]]


@pytest.mark.parametrize(
    ("family", "change", "error", "message"),
    [
        ("autoregressive", {"max_tokens": 250}, DataError, "exceed the context of 256"),
        ("masked", {"steps": None}, RecipeError, "number of denoising steps"),
        ("masked", {"max_tokens": 4, "steps": 8}, RecipeError, "do not fit"),
        ("masked", {"max_tokens": 9, "steps": 2}, DataError, "canvas has 8 places"),
        ("flow", {"steps": None}, RecipeError, "number of steps"),
        ("flow", {"max_tokens": 5}, DataError, "canvas has 4 places"),
        ("slots", {"steps": None}, RecipeError, r"sampling\.steps is not set"),
        ("slots", {"steps": 5}, RecipeError, "5 rounds do not fit 4 slots"),
        ("slots", {"max_tokens": 7}, RecipeError, "7, which is no whole number of slots of 2"),
        ("slots", {"blocks": 3}, RecipeError, "cannot be cut into 3 equal blocks"),
        ("slots", {"blocks": 4}, RecipeError, "2 rounds do not fit 4 slots in 4 blocks"),
        ("slots", {"max_tokens": 16}, RecipeError, "the model's canvas has 8 places"),
        ("slots", {}, DataError, "exceed the context of 64"),
    ],
    ids=str,
)
def test_distributions_that_do_not_fit_are_errors(variant, family, change, error, message):
    with pytest.raises(error, match=message):
        sample_trajectories(
            variant(family),
            LONG if "context" in message else CHATS,
            1,
            replace(SAMPLINGS[family], **change),
            0,
        )
