"""A pack's attention prompt by prompt, against one plain pass a row and against the pack with its
square mask."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3TextConfig,
    LlamaConfig,
    Qwen2Config,
)

from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.policies.autoregressive import packing
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.autoregressive.packing import pack
from plumbline.policies.autoregressive.probe import (
    _draw_texts,
    _run_decoder,
    _run_plain_pass,
    probe,
)
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.numerics import AgreementCheck
from plumbline.records import Sampling, Trajectory, Transition
from plumbline.storage import read_json

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
LENGTHS = {11: [5, 1, 8, 3], 7: [1, 1], 4: [6], 1: [2, 4]}
"""Of the prompts, and of the completions of each."""


@pytest.fixture(scope="module")
def grouped(tiny_folder, tmp_path_factory):
    """A Llama whose four heads share two heads of keys and values, with attention that is far from
    even."""
    folder = tmp_path_factory.mktemp("shared") / "grouped"
    return made(
        folder,
        LlamaConfig(num_key_value_heads=2, max_position_embeddings=256, **SIZES),
        tiny_folder,
    )


def made(folder, config, tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    config.vocab_size, config.eos_token_id, config.pad_token_id = (
        len(tokenizer),
        tokenizer.eos_token_id,
        0,
    )
    config.bos_token_id = None
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.mul_(20.0 if "q_proj" in name or "k_proj" in name else 6.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def opened(folder, **options):
    return open_policy(AutoregressiveModel(name=str(folder), **options), str(folder))


def ragged(lengths=LENGTHS):
    rng = np.random.default_rng(5)
    found = []
    for prompt, completions in lengths.items():
        ids = rng.integers(3, 290, prompt)
        for length in completions:
            step = Transition(
                positions=np.arange(length),
                tokens=rng.integers(3, 290, length),
                logprobs=np.zeros(length, np.float32),
            )
            found.append(
                Trajectory(
                    prompt=ids, transitions=(step,), text="", sampling=Sampling(), finish="length"
                )
            )
    return found


def row_by_row(model, trajectories):
    """Each trajectory by itself, through the model's own head: nothing of ours."""
    found = []
    for trajectory in trajectories:
        ids = torch.tensor([[*trajectory.prompt.tolist(), *trajectory.tokens.tolist()]])
        logprobs = (
            model(ids, use_cache=False).logits[0, len(trajectory.prompt) - 1 : -1].log_softmax(-1)
        )
        found.append(logprobs.gather(-1, ids[0, len(trajectory.prompt) :, None])[:, 0])
    return torch.cat(found)


def with_gradients(policy, score):
    policy.model.zero_grad(set_to_none=True)
    logprobs = score()
    (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()
    return logprobs.detach(), {name: weight.grad for name, weight in policy.trainable().items()}


def agree(got, wanted):
    torch.testing.assert_close(got[0], wanted[0], atol=5e-5, rtol=0)
    for name, gradient in wanted[1].items():
        assert (got[1][name] - gradient).norm() < 1e-4 * gradient.norm(), name


class Watched:
    """Attention, with the height of its highest mask."""

    def __init__(self, monkeypatch):
        self.height = 0
        true = torch.nn.functional.scaled_dot_product_attention

        def attend(query, key, value, attn_mask=None, **kwargs):
            self.height = max(self.height, 0 if attn_mask is None else attn_mask.shape[-2])
            return true(query, key, value, attn_mask=attn_mask, **kwargs)

        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)


@pytest.fixture(params=["written-out", "bands", "sdpa"])
def way(request, monkeypatch):
    """How attention is computed: at once, band after band, or by torch where scores would be too
    many."""
    ways = {"bands": ("BAND", 4), "sdpa": ("SCORES_AT_ONCE", 0), "written-out": ("BAND", 128)}
    monkeypatch.setattr(packing, *ways[request.param])
    return request.param


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
def test_packs_in_groups_score_as_rows_and_as_masked_packs_do(
    grouped, checkpointing, way, monkeypatch
):
    trajectories = ragged()
    policy = opened(grouped, gradient_checkpointing=checkpointing)
    assert policy._abilities.shared
    wanted = with_gradients(policy, lambda: row_by_row(policy.model, trajectories))
    assert wanted[0].std() > 0.5
    attention = Watched(monkeypatch)
    agree(with_gradients(policy, lambda: policy.score(trajectories).logprobs), wanted)
    # A mask is as high as the longest completion, without its last token.
    assert attention.height == (7 if way == "sdpa" else 0)
    policy._abilities = replace(policy._abilities, shared=False)
    agree(with_gradients(policy, lambda: policy.score(trajectories).logprobs), wanted)
    assert attention.height == len(pack(trajectories, policy.device).ids[0])


def test_demonstrations_end_to_end_train_as_rows_do(grouped, way):
    """Of unlike lengths, with targets in several places, none of them padded; what three begin with
    is read once."""
    policy, rng = opened(grouped), np.random.default_rng(3)
    system, other = (tuple(rng.integers(3, 290, 40).tolist()) for _ in range(2))
    shown = [
        Demonstration(
            before + tuple(rng.integers(3, 290, length).tolist()), (False,) * len(before) + targets
        )
        for before, length in (
            ((), 12),
            (system, 30),
            ((), 5),
            (system, 17),
            (other, 9),
            (system, 1),
            ((), 17),
        )
        for targets in [(*(np.arange(length) % 5 > 2).tolist()[:-1], True)]
    ]
    lengths, body = [], policy.model.get_decoder()
    body.register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape))
    packed = with_gradients(policy, lambda: policy.supervised_loss(shown, ()).unsqueeze(0))
    policy._abilities = replace(policy._abilities, shared=False)
    rows = with_gradients(policy, lambda: policy.supervised_loss(shown, ()).unsqueeze(0))
    read = 2 * 40 + 12 + 30 + 5 + 17 + 9 + 1 + 17 - len(shown)
    assert lengths == [(1, read), (len(shown), 70)], (
        "the system prompt of three once, and no last token"
    )
    torch.testing.assert_close(packed[0], rows[0], atol=1e-3, rtol=0)
    for name, gradient in rows[1].items():
        assert (packed[1][name] - gradient).norm() < 1e-4 * gradient.norm(), name


@pytest.mark.parametrize("before", [0, 5])
def test_causal_attention_behind_a_cache_is_torchs(before, way):
    made, scale = torch.Generator().manual_seed(2), 0.3
    query = torch.randn((2, 3, 2, 11, 8), generator=made)  # [K, times, B, Q, D]
    key, value = torch.randn((2, 2, 2, before + 11, 8), generator=made)  # [K, B, S, D]
    sees = torch.arange(before + 11) <= torch.arange(before, before + 11).unsqueeze(1)
    for kv, times in np.ndindex(2, 3):
        wanted = torch.nn.functional.scaled_dot_product_attention(
            query[kv, times], key[kv], value[kv], attn_mask=sees, scale=scale
        )
        got = packing.attend(query, key, value, None, scale)[kv, times]
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("band", [1, 4, 128])
def test_the_gradients_of_bands_are_those_of_one_softmax_over_prompt_and_past(band, monkeypatch):
    """In float64, against autograd through torch's attention of each head, with prompts of unlike
    lengths."""
    monkeypatch.setattr(packing, "BAND", band)
    made = torch.Generator().manual_seed(4)

    def drawn(*shape):
        return torch.randn(shape, generator=made, dtype=torch.float64, requires_grad=True)

    query, own, prompt = drawn(2, 3, 4, 9, 8), drawn(2, 2, 4, 9, 8), drawn(2, 2, 4, 6, 8)
    there = torch.arange(6) < torch.tensor([6, 3, 5, 0]).unsqueeze(1)
    past = torch.ones(9, 9, dtype=torch.bool).tril()
    sees = torch.cat([there.unsqueeze(1).expand(-1, 9, -1), past.expand(4, -1, -1)], dim=2)
    # Its shape is [2, K, times, R, P + C, D].
    wide = torch.cat([prompt, own], dim=3).unsqueeze(2).expand(-1, -1, 3, -1, -1, -1)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        query, *wide, attn_mask=sees, scale=0.3
    )
    weights = torch.randn(wanted.shape, generator=made, dtype=torch.float64)
    got = packing.attend(query, *own, (*prompt, there), 0.3)
    torch.testing.assert_close(got, wanted)
    for mine, true in zip(
        *(
            torch.autograd.grad((each * weights).sum(), (query, own, prompt))
            for each in (got, wanted)
        ),
        strict=True,
    ):
        torch.testing.assert_close(mine, true)


def test_prompts_share_a_pass_and_the_sum_is_the_same(grouped, monkeypatch):
    """At least two passes are left; the gradient, term by term, is that of a pass a prompt."""
    policy, trajectories = opened(grouped), ragged()
    prompts = [[0, 1, 2, 3], [4, 5], [6], [7, 8]]
    parts = policy.batches(trajectories, 10_000)
    assert parts == [prompts[0], [4, 5, 6, 7, 8]], "about equally many tokens: 28 and 25"
    scale = torch.linspace(-1, 2, sum(trajectory.num_tokens for trajectory in trajectories))

    def summed(cut):
        policy.model.zero_grad(set_to_none=True)
        found, start = [], 0
        for part in cut:
            logprobs = policy.score([trajectories[index] for index in part]).logprobs
            (logprobs * scale[start : start + len(logprobs)]).sum().backward()
            found.append(logprobs.detach())
            start += len(logprobs)
        return torch.cat(found), {name: weight.grad for name, weight in policy.trainable().items()}

    agree(summed(parts), summed(prompts))
    monkeypatch.setattr(policy, "device", torch.device("cuda"))
    many = ragged({40 + size: [30] * 8 for size in range(12)})
    on_gpu, smaller = policy.batches(many, 10_000), policy.batches(many, 700)
    assert [len(part) for part in on_gpu] == [48, 48]
    assert max(len({many[i].prompt.tobytes() for i in part}) for part in smaller) == 2
    assert [index for part in smaller for index in part] == list(range(96))
    assert len(policy.batches(many, 200)) > 12, "nothing is joined to a part of a prompt"
    monkeypatch.setattr(policy, "device", torch.device("cpu"))
    assert (
        max(sum(40 + 240 for i in part if i % 8 == 0) for part in policy.batches(many, 10_000))
        < 1024
    )


def test_a_pack_of_single_tokens_only(grouped):
    policy, trajectories = opened(grouped), ragged({6: [1, 1], 3: [1]})
    torch.testing.assert_close(
        policy.score(trajectories).logprobs,
        row_by_row(policy.model, trajectories),
        atol=5e-5,
        rtol=0,
    )


def test_groups_say_the_same_as_the_mask():
    packed = pack(ragged(), torch.device("cpu"))
    length = packed.ids.shape[1]
    seen = torch.zeros(length, length, dtype=torch.bool)
    groups, places = (
        packed.groups,
        torch.cat([packed.groups.prompts.flatten(), packed.groups.own.flatten()]),
    )
    assert torch.equal(places[groups.order], torch.arange(length))
    real = torch.zeros(len(places), dtype=torch.bool)
    real[groups.order] = True
    assert torch.equal(real[: groups.prompts.numel()].view(groups.prompts.shape), groups.there)
    own_there = real[groups.prompts.numel() :].view(groups.own.shape)
    for prompt, there in zip(groups.prompts, groups.there, strict=True):
        for place in range(int(there.sum())):
            seen[prompt[place], prompt[: place + 1]] = True
    for own, there, owner in zip(groups.own, own_there, groups.owners, strict=True):
        for place in there.nonzero().flatten().tolist():
            seen[own[place], groups.prompts[owner][groups.there[owner]]] = True
            seen[own[place], own[: place + 1]] = True
    assert torch.equal(seen, packed.mask[0, 0])


def test_a_grouped_pass_makes_no_mask_of_the_square(grouped, monkeypatch):
    policy, seen = opened(grouped), []
    true = packing.shared_attention
    from transformers import AttentionInterface

    def look(module, query, key, value, attention_mask, **kwargs):
        seen.append((kwargs.get("groups") is not None, attention_mask.numel()))
        return true(module, query, key, value, attention_mask, **kwargs)

    monkeypatch.setitem(AttentionInterface._global_mapping, packing.SHARED, look)
    monkeypatch.setattr(
        packing.Pack, "mask", property(lambda self: pytest.fail("the square was made"))
    )
    policy.score(ragged())
    assert seen == [(True, 1)] * 2


def test_another_attention_keeps_the_masked_pack(grouped):
    trajectories = ragged()
    model = AutoModelForCausalLM.from_pretrained(grouped, attn_implementation="eager")
    abilities = probe(model)
    assert (abilities.packing, abilities.shared) == (True, False)
    assert abilities.left_out() == "shared attention"
    assert model.config._attn_implementation == "eager"
    policy = opened(grouped)
    policy.model, policy._abilities = model, abilities
    torch.testing.assert_close(
        policy.score(trajectories).logprobs, row_by_row(model, trajectories), atol=5e-5, rtol=0
    )


def test_shared_attention_that_is_wrong_is_not_left_in_the_model(grouped, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(grouped)
    monkeypatch.setattr(
        packing,
        "shared_attention",
        lambda module, query, *_, **__: (query.transpose(1, 2) * 0, None),
    )
    abilities = probe(model)
    assert (abilities.packing, abilities.shared) == (True, False)
    assert model.config._attn_implementation == "sdpa"


def test_a_saved_model_shows_no_trace_of_it(grouped, tmp_path):
    policy = opened(grouped)
    assert policy.model.config._attn_implementation == packing.SHARED
    policy.save(tmp_path / "saved", {})
    assert packing.SHARED not in "".join(
        path.read_text() for path in (tmp_path / "saved").glob("*.json")
    )
    config, before = (read_json(folder / "config.json") for folder in (tmp_path / "saved", grouped))
    assert config == before
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert again.config._attn_implementation == "sdpa"
    trajectories = ragged()
    assert torch.equal(row_by_row(again, trajectories), row_by_row(policy.model, trajectories))


def test_what_a_window_would_cut_off_is_scored_in_rows(tiny_folder, tmp_path):
    """The window is longer than what the probe tries: only its length tells that a pack would be
    wrong."""
    config = Gemma3TextConfig(
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=40,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=256,
        **SIZES,
    )
    policy = opened(made(tmp_path / "window", config, tiny_folder))
    assert policy.engine["scoring"] == "packed"
    inside, beyond = ragged({20: [5, 20]}), ragged({20: [5, 60]})
    for trajectories in (inside, beyond):
        torch.testing.assert_close(
            policy.score(trajectories).logprobs,
            row_by_row(policy.model, trajectories),
            atol=2e-4,
            rtol=0,
        )
    policy._reach = None
    assert (policy.score(beyond).logprobs - row_by_row(policy.model, beyond)).abs().max() > 0.01
    assert (policy.score(inside).logprobs - row_by_row(policy.model, inside)).abs().max() < 2e-4


BF16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="this processor does not multiply bfloat16",
)


@pytest.fixture(scope="module")
def wider(tiny_folder, tmp_path_factory):
    """As `grouped`, with products that are large enough for oneDNN."""
    sizes = {
        "hidden_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "intermediate_size": 192,
    }
    config = LlamaConfig(num_key_value_heads=2, max_position_embeddings=512, **sizes)
    return made(tmp_path_factory.mktemp("shared") / "wider", config, tiny_folder)


@BF16
def test_in_16_bits_the_scorer_rounds_where_the_sampler_does(wider):
    """Prompts of unlike lengths, with a beginning that is read once, in packs of one and of several
    of them."""
    policy = opened(
        wider, dtype="bfloat16", device="cpu", lora={"rank": 4, "alpha": 8}, rows_at_once=20
    )
    generator = torch.Generator().manual_seed(0)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    assert (policy.engine["decoder"], policy.engine["left_out"]) == ("lean", "")
    policy.chat.stop_ids = (-1,)
    chats = [
        [{"role": "user", "content": "produto chegou tarde " * times}] for times in (2, 9, 5, 3)
    ]
    drawn = sample_trajectories(policy, chats, 8, Sampling(max_tokens=24), seed=0)
    trajectories = [trajectory for group in drawn for trajectory in group]
    for parts in (policy.batches(trajectories, 2048), [range(len(trajectories))]):
        with torch.no_grad():
            terms = [policy.score([trajectories[index] for index in part]) for part in parts]
        gaps = torch.cat([each.logprobs - each.recorded for each in terms]).abs()
        assert len(gaps) == 768
        if torch.cpu._is_amx_tile_supported():
            # There a product of few rows adds some of its elements up in another order than one of
            # many.
            assert (gaps > 1e-4).float().mean() < 0.02
        else:
            assert gaps.max() < 1e-4


@BF16
def test_in_16_bits_passes_have_few_lengths_and_score_alike(wider):
    """oneDNN keeps code for every shape that it meets: 150 passes of lengths of their own held 3
    GB."""
    policy, lengths = opened(wider, dtype="bfloat16", device="cpu"), set()
    policy.model.get_decoder().register_forward_pre_hook(
        lambda _, args: lengths.add(args[0].shape[-1])
    )
    assert policy._rounded
    rng = np.random.default_rng(3)

    def losses(rounded):
        policy._rounded = rounded
        with torch.no_grad():
            shown = torch.stack([policy.supervised_loss(each, ()) for each in batches])
            return torch.cat([shown / 20, policy.score(ragged()).logprobs])

    batches = [
        [
            Demonstration(
                tuple(rng.integers(3, 290, length).tolist()),
                (False,) * (length - 20) + (True,) * 20,
            )
        ]
        for length in range(65, 165, 5)
    ]
    few = losses(rounded=True)
    assert lengths == {64, 128, 192}
    torch.testing.assert_close(few, losses(rounded=False), atol=0.05, rtol=0)
    assert len(lengths) > 20
    groups = pack(ragged({50: [9, 40]}), policy.device, rounded=True).groups
    assert (groups.prompts.shape, groups.own.shape) == ((1, 64), (2, 64))


@pytest.mark.parametrize("cached", [0, 12], ids=["begun", "behind-a-prompt"])
def test_large_scores_do_not_lose_their_order_in_16_bits(cached):
    """What all keys have in common, as a key's bias, moves every score alike and so nothing."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, 1, 24, 8) for heads in (2, 1, 1))
    query, common = query + 4, torch.full((8,), 16.0)
    query, key, value = (each.bfloat16() for each in (query, key + common, value))
    key, value = key[:, 0], value[:, 0]
    first = None
    if cached:
        there = torch.ones((1, cached), dtype=torch.bool)
        first = (key[:, :, :cached], value[:, :, :cached], there)
        query, key, value = query[..., cached:, :], key[:, :, cached:], value[:, :, cached:]
    wide = None if first is None else (first[0].float(), first[1].float(), first[2])
    exact = packing.attend(query.float(), key.float(), value.float(), wide, 1.0)
    found = packing.attend(query, key, value, first, 1.0)
    assert (query.float() @ key[:, None].float().mT).max() > 512, "bfloat16 counts by fours there"
    torch.testing.assert_close(found.float(), exact, atol=0.03, rtol=0)


@pytest.fixture(scope="module")
def biased(tiny_folder, tmp_path_factory):
    """A Qwen2 in 16 bits whose biases of queries and keys make scores of a thousand, as those of a
    published one."""
    config = Qwen2Config(num_key_value_heads=2, max_position_embeddings=256, **SIZES)
    folder = made(tmp_path_factory.mktemp("biased") / "qwen2", config, tiny_folder)
    policy = opened(folder, dtype="bfloat16")
    with torch.no_grad():
        for layer in policy.model.model.layers:
            for side, size, index in (("q_proj", 0.1, 3), ("k_proj", 0.25, 7)):
                projection = getattr(layer.self_attn, side)
                projection.weight.mul_(size)
                projection.bias.fill_(0).view(-1, 8)[:, index] = 64
    return policy


def test_a_decoder_of_large_scores_is_as_exact_in_16_bits_as_the_model(biased):
    with torch.no_grad():
        packing.remove_shared_attention(biased.model)
        texts = _draw_texts(biased.model, (15, 9))
        own = _run_plain_pass(biased.model, *texts)
        trial = AgreementCheck.from_model(
            biased.model, lambda: _run_plain_pass(biased.model, *texts)
        )
        assert trial.distance(_run_decoder(biased.model, *texts)) < 1.2 * trial.distance(own)
        packing.install_shared_attention(biased.model)


@pytest.mark.skipif(torch.cpu._is_amx_tile_supported(), reason="AMX rounds by the number of rows")
def test_sampler_and_scorer_add_large_scores_up_alike(biased):
    chats = [[{"role": "user", "content": "a nota e " * size}] for size in (2, 9)]
    drawn = sample_trajectories(biased, chats, 4, Sampling(max_tokens=24), seed=0)
    answers = [answer for group in drawn for answer in group]
    with torch.no_grad():
        terms = biased.score(answers)
    assert len(terms.logprobs) > 100
    assert (terms.logprobs - terms.recorded).abs().max() < 1e-4


@pytest.mark.parametrize(("rows", "keys"), [(1, 100), (3, 33), (7, 2)])
def test_a_score_does_not_depend_on_which_others_are_computed_with_it(rows, keys):
    """Sampler and scorer have products of other shapes, which add up in other orders."""
    torch.manual_seed(0)
    sizes = torch.logspace(-2, 1.5, 64)  # of channels, as unlike as a model's
    query, key = ((torch.randn(count, 64) * sizes).bfloat16() for count in (56, 100))
    whole = packing.multiply(query, packing.widen(key).mT)
    part = packing.multiply(query[:rows], packing.widen(key[:keys]).mT)
    assert part.dtype == torch.float32
    assert (part != whole[:rows, :keys]).float().mean() < 0.01
