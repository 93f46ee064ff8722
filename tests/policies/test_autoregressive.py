"""The autoregressive policy against transformers' generate, against itself under other engines, and
under both laws."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoTokenizer

from conftest import sharpen
from plumbline.api import sample_trajectories
from plumbline.errors import ModelError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive import policy as sampler
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.chunks import chunks
from plumbline.records import Request, Sampling
from tests.fake_gpu import fake_gpu, waits
from tests.policies.families import assert_both_laws_hold

CHATS = [
    [{"role": "user", "content": "o produto"}],
    [
        {"role": "system", "content": "extraia"},
        {"role": "user", "content": "não recomendo, 12 dias de atraso " * 3},
    ],
    [{"role": "user", "content": "sim"}],
]

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
LLAMA_LIKE = {
    **SMALL,
    "intermediate_size": 64,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}
ARCHITECTURES = {
    "llama": ("LlamaConfig", {**LLAMA_LIKE, "rope_theta": 5e3, "attention_bias": True}),
    "qwen2": ("Qwen2Config", LLAMA_LIKE),
    "qwen3": ("Qwen3Config", {**LLAMA_LIKE, "head_dim": 16}),
    "mistral": ("MistralConfig", {**LLAMA_LIKE, "sliding_window": None}),
    "mistral-window": ("MistralConfig", {**LLAMA_LIKE, "sliding_window": 8}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}),
    "gemma2": (
        "Gemma2Config",
        {**LLAMA_LIKE, "head_dim": 8, "final_logit_softcapping": 2.0, "sliding_window": 8},
    ),
    "phi": ("PhiConfig", {**SMALL, "intermediate_size": 64}),
}
LEAN = {"llama", "qwen2", "qwen3", "mistral"}


@pytest.fixture(scope="session")
def architectures(tiny_folder, tmp_path_factory):
    """A directory for each architecture: random weights, the tiny model's tokenizer."""
    import transformers

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    folders = {}
    for name, (config_class, sizes) in ARCHITECTURES.items():
        config = getattr(transformers, config_class)(
            vocab_size=len(tokenizer),
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            pad_token_id=0,
            **sizes,
        )
        with torch.random.fork_rng():
            torch.manual_seed(7)
            model = transformers.AutoModelForCausalLM.from_config(config)
        folders[name] = tmp_path_factory.mktemp("architectures") / name
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
        if name in LEAN:
            sharpen(folders[name], 3.0)
    return folders


def opened(folder, **options):
    return open_policy(AutoregressiveModel(name=str(folder), **options), str(folder))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_answers_are_generates_token_for_token(architectures, name):
    policy = opened(architectures[name])
    assert policy.engine["decoder"] == ("lean" if name in LEAN else "transformers")
    answers = sample_trajectories(policy, CHATS, 1, Sampling(temperature=0, max_tokens=24), seed=0)
    for chat, (answer,) in zip(CHATS, answers, strict=True):
        ids = torch.tensor([policy.chat.prompt(chat)])
        generated = policy.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=list(policy.chat.stop_ids),
        )
        assert answer.tokens.tolist() == generated[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_engine_gives_the_same_draws_and_scores(architectures, name):
    chosen = opened(architectures[name])
    general = opened(architectures[name], decoder="transformers", scoring="rows")
    sampling = Sampling(temperature=0.9, max_tokens=12)
    ours = [t for group in sample_trajectories(chosen, CHATS, 3, sampling, seed=3) for t in group]
    theirs = [
        t for group in sample_trajectories(general, CHATS, 3, sampling, seed=3) for t in group
    ]
    assert [t.tokens.tolist() for t in ours] == [t.tokens.tolist() for t in theirs]
    one, other = chosen.score(ours), general.score(ours)
    torch.testing.assert_close(one.logprobs, other.logprobs, atol=2e-5, rtol=0)
    torch.testing.assert_close(one.logprobs, one.recorded, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=3, max_tokens=3),
        Sampling(temperature=0.4, top_k=4, max_tokens=2),
        Sampling(top_p=0.6, max_tokens=1),
        Sampling(temperature=1.7, max_tokens=1),
    ],
    ids=str,
)
def test_both_laws_hold(tiny_policy, sampling):
    assert_both_laws_hold(
        tiny_policy, CHATS[0], sampling, draws=2500, seed=11, most=1 + 1e-4, kinds=3
    )


def test_dropping_finished_rows_changes_nothing(tiny_policy, monkeypatch):
    sampling = Sampling(temperature=1.5, max_tokens=40)
    # Several stop tokens, so that rows end at many different times.
    monkeypatch.setattr(tiny_policy.chat, "stop_ids", tuple(range(60)))
    shapes = []
    original = sampler._smaller_grid
    monkeypatch.setattr(
        sampler, "_smaller_grid", lambda live: shapes.append(live.shape) or original(live)
    )
    dropped = sample_trajectories(tiny_policy, CHATS, 5, sampling, seed=4)
    assert min(p * g for p, g in shapes) < 15
    monkeypatch.setattr(sampler, "_smaller_grid", lambda live: None)
    kept = sample_trajectories(tiny_policy, CHATS, 5, sampling, seed=4)
    assert [[t.tokens.tolist() for t in g] for g in dropped] == [
        [t.tokens.tolist() for t in g] for g in kept
    ]
    assert {t.finish for group in kept for t in group} == {"stop", "length"} or all(
        t.tokens[-1] < 60 for group in kept for t in group
    )


def test_dropout_is_off_even_where_the_model_asks_for_it(architectures):
    policy = opened(architectures["gpt2"])
    policy.model.train()
    trajectories = sample_trajectories(policy, [CHATS[0]], 2, Sampling(max_tokens=8), seed=0)[0]
    torch.testing.assert_close(
        policy.score(trajectories).logprobs, policy.score(trajectories).logprobs, atol=0, rtol=0
    )
    policy.model.eval()


def test_an_engine_asked_for_by_name_that_does_not_fit_is_an_error(architectures):
    with pytest.raises(ModelError, match=r"model\.decoder: lean"):
        opened(architectures["gpt2"], decoder="lean")
    with pytest.raises(ModelError, match="packed differs"):
        opened(architectures["gemma2"], scoring="packed")


def test_a_step_that_fails_at_loading_leaves_the_lean_decoder_out(architectures, monkeypatch):
    def broken(self, tokens):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(LeanDecoder, "step", broken)
    assert "kernel image" in opened(architectures["llama"]).engine["why_not_lean"]


class Even:
    """A decoder whose every token is as likely."""

    def begin(self, prompts, copies, max_tokens, shared=0):
        self.words = torch.zeros(1, 300, device="cuda")
        return self.words.expand(len(prompts), 300)

    def step(self, tokens):
        return self.words.expand(len(tokens), 300)

    def keep(self, prompts, copies):
        pass


class Waits(TorchDispatchMode):
    """Counts the operations that a GPU would be waited for."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += waits(func, args)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("law", [{}, {"top_k": 5}, {"top_p": 0.9}, {"temperature": 0}], ids=str)
def test_the_loop_waits_for_no_token(law):
    def waited(limit):
        requests = [
            Request((1, index), CHATS[index % 2], Sampling(max_tokens=limit, **law))
            for index in range(4)
        ]
        (chunk,) = chunks(
            requests, Sampling, lambda request: [1, 2, len(request.messages[0]["content"])], 64
        )
        with fake_gpu(), Waits() as counter:
            list(sampler.decode(Even(), chunk, [7, 8], torch.device("cuda", 0)))
        return counter.count

    assert waited(15) == waited(3), "the same number, whatever the length"
    assert waited(15) < waited(60), "and it is asked at times what has ended"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("law", [{}, {"top_k": 5}, {"top_p": 0.9}, {"temperature": 0}], ids=str)
def test_a_gpu_is_waited_for_at_no_token(architectures, law, monkeypatch):
    policy, steps, true = opened(architectures["llama"], device="cuda"), [], LeanDecoder.step
    monkeypatch.setattr(policy.chat, "stop_ids", (-1,))
    whole = Sampling(max_tokens=16, **law)  # of 16 tokens nothing is asked in between
    sample_trajectories(policy, CHATS, 6, whole, 0)

    def watched(self, *args):
        steps.append(1)
        torch.cuda.set_sync_debug_mode("error" if 1 < len(steps) < 15 else "default")
        return true(self, *args)

    monkeypatch.setattr(LeanDecoder, "step", watched)
    try:
        sample_trajectories(policy, CHATS, 6, whole, 0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(steps) == 15
