"""`plumbline export MODEL --prove WHERE`: whether a server or a file answers as the trained model
does, and what is wrong with it where it does not.

Letters in shapes: N tokens of answers.

What is deployed answers each prompt greedily, and drawn at temperature 1. Its tokens are scored here
by the trained weights behind the trained prompt, and by what commonly takes their place: the base,
the adapter added twice, another step; no system message. What gives the served
log-probabilities is what is served. Without log-probabilities its greedy answers are judged: how far
below the most probable token theirs are. Quantisation moves away from all of these alike: it is a
size, and no fault.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from plumbline.config.overrides import read_package_yaml
from plumbline.errors import EngineError, ModelError, PlumblineError
from plumbline.evaluation.endpoint import Endpoint
from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.export.card import (
    ExportSource,
    RewardChange,
    change_text,
    compare_rewards,
    find_source,
    held_out,
    open_tasks,
)
from plumbline.export.weights import OPTIONS
from plumbline.policies import open_policy
from plumbline.policies.model_files import models_in
from plumbline.policies.opening import options_as_trained
from plumbline.policies.policy import Sampler
from plumbline.records import Message, Request, Row, Sampling, Trajectory
from plumbline.runs.run import Listener

if TYPE_CHECKING:
    from torch import Tensor

FAULTS: Mapping[str, tuple[str, str]] = read_package_yaml(Path(__file__).with_name("faults.yaml"))
"""Code, what is wrong and what to do, in the order in which they are to be mended."""
QUESTION = "O produto chegou atrasado: nota 12, na\u00efve \u6771\u4eac, if x[3] != 0.5?"
"""What tells tokenizers and templates apart, beside a shorter chat."""
EXACT, CLOSE, WRONG = 1e-3, 0.1, 0.5
"""Mean nats a token: what float32 makes at most; what one model surely makes; and from which on no
rounding explains it."""
CLEAR, OFTEN = 0.5, 0.01
"""Nats below the most probable token at which a token was not chosen greedily, and the share of such
tokens that no tie explains."""
CHANCE = 6.0
"""Nats: what is less probable than exp(-CHANCE) was no chance."""
DRAWN, SIBLINGS = 64, 6
"""Tokens of a drawn answer; other saved models of a training that are tried."""
Chat = Sequence[Message]
Found = dict[str, dict[str, Any]]
"""What says so, by the codes of faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was found."""

    model: str
    where: str
    faults: Mapping[str, Row]
    """Their figures, by their codes (`FAULTS`)."""
    figures: Row
    """`prompts` and the `same` greedy answers; of `compared` tokens the `mean` and `largest`
    difference of log-probabilities [nats], None where there are none."""
    rewards: Sequence[RewardChange]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def text(self) -> str:
        """For people: a line for each fault, one of figures, one for each task."""
        figures = self.figures
        gap = "no log-probabilities could be compared"
        if figures["compared"]:
            gap = (
                f"log-probabilities of {figures['compared']} tokens differ by {figures['mean']:.2g} "
                f"nats in the mean and by at most {figures['largest']:.2g}"
            )
            if not self.faults and figures["mean"] > EXACT:
                gap += ": the size of rounding or quantisation"
        lines = [f"{self.where} beside {self.model}: {', '.join(self.faults) or 'no fault found'}"]
        for code, about in self.faults.items():
            shown = ", ".join(
                f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in about.items()
            )
            lines.append(f"  {code}: {FAULTS[code][0]} ({shown}); {FAULTS[code][1]}")
        lines.append(
            f"{figures['same']} of {figures['prompts']} greedy answers are the same; {gap}"
        )
        return "\n".join([*lines, *(change_text(one, "served") for one in self.rewards), ""])


def prove(given: str, where: str, limit: int, listener: Listener) -> Proof:
    """Compare what is deployed with a trained model.

    Args:
        given: a run's folder, a model directory (an adapter's, too), a GGUF file or a name.
        where: [NAME=]ADDRESS of an OpenAI-compatible server, a model directory or a GGUF file.
        limit: held-out prompts of each of the model's tasks.
        listener: is told how far it has come.

    Raises:
        ModelError: there is no model, or it does not write from left to right.
        EngineError: the server is not there, refuses, or answers something else.
    """
    if not where.rpartition("=")[2]:
        raise ModelError(
            f"--prove {where!r} names no place",
            "give an address, a model's directory or a GGUF file",
        )
    source = find_source(given)
    tasks = {} if source.metadata is None else open_tasks(source.model, listener)
    listener.working(f"opening {source.model}", 0, 1)
    policy, greedy = _open(source.model)
    deployed = _open_deployed(where)
    split = held_out(source)
    examples = {name: task.examples(split)[:limit] for name, task in tasks.items()}
    chats: list[Chat] = [one.messages for each in examples.values() for one in each]
    chats = chats or _trial_chats()
    drawn = Sampling(max_tokens=min(DRAWN, greedy.max_tokens))
    greedy = greedy if tasks else drawn.as_greedy()
    calls = [(deployed, greedy), (deployed, greedy), (deployed, drawn), (policy, greedy)]
    answers = []
    for done, (sampler, sampling) in enumerate(calls):
        listener.working("asking", done, len(calls))
        answers.append(_ask(sampler, chats, sampling))
    listener.working("asking", len(calls), len(calls))
    theirs, again, sampled, ours = answers
    found = _compare_prompts(policy, deployed, chats, theirs)
    figures: dict[str, Any] = dict.fromkeys(("compared", "mean", "largest"))
    if "tokenizer" not in found:
        repeats = [one.text for one in theirs] == [one.text for one in again]
        listener.working("comparing log-probabilities", 0, 1)
        evidence, prompts = _Evidence(policy, theirs, sampled, ours), _list_prompts(policy, chats)
        with closing(_list_weights(source, policy)) as weights:
            more, figures = _compare_weights(weights, prompts, evidence, repeats, bool(found))
        if not more.keys() & {"base", "adapter-twice", "other-step"}:
            found |= _compare_ends(theirs, ours)
        found |= more | _compare_limits(theirs)
    if len(found) > 1:
        found.pop("other-weights", None)
    rewards, start = [], 0
    for name, task in tasks.items():
        part = slice(start, start := start + len(examples[name]))
        before, after = (
            evaluate_completions(
                task, examples[name], [one.text for one in each[part]], source=name, split=split
            )
            for each in (ours, theirs)
        )
        rewards.append(compare_rewards(name, before, after))
    same = sum(
        one.text.strip() == other.text.strip() for one, other in zip(theirs, ours, strict=True)
    )
    return Proof(
        model=given,
        where=where,
        faults={code: found[code] for code in FAULTS if code in found},
        figures={"prompts": len(chats), "same": same, **figures},
        rewards=rewards,
    )


def _open(model: str) -> tuple[Any, Sampling]:
    """A model that writes from left to right, in float32, and how its run decoded greedily."""
    section, sampling = options_as_trained(model, OPTIONS)
    if section.family != "autoregressive":
        raise ModelError(
            f"{model} is of family {section.family}, whose answers have no log-probabilities of "
            "single tokens",
            "compare its rewards: `plumbline eval NAME --engine ADDRESS --task NAME`",
        )
    return open_policy(section, model), sampling.as_greedy()


def _open_deployed(where: str) -> Sampler:
    name, _, address = where.rpartition("=")
    if not address.startswith(("http://", "https://")):
        return _open(where)[0]
    deployed = Endpoint(address, name, logprobs=True)
    if not name:
        names = deployed.names()
        if len(names) != 1:
            raise EngineError(
                f"{address} has {len(names)} models: {', '.join(names)[:300]}",
                f"say which is the trained one: --prove NAME={address}",
            )
        deployed.model = names[0]
    return deployed


def _trial_chats() -> list[Chat]:
    """What a model without a task is asked."""
    from plumbline.policies.pretrained.weight_sync_check import PROBE

    return [[{"role": "user", "content": question}] for question, _ in PROBE]


def _ask(sampler: Sampler, chats: Sequence[Chat], sampling: Sampling) -> list[Trajectory]:
    """An answer to each chat, in order; without log-probabilities where a server refuses them."""
    requests = [Request((index, "prove"), chat, sampling) for index, chat in enumerate(chats)]
    try:
        found = {request.key: answer for request, answer in sampler.sample(requests)}
    except EngineError:
        if sampling.greedy or not isinstance(sampler, Endpoint) or not sampler.logprobs:
            raise
        sampler.logprobs = False
        return _ask(sampler, chats, sampling)
    return [found[request.key] for request in requests]


def _compare_prompts(
    policy: Any, deployed: Sampler, chats: Sequence[Chat], theirs: Sequence[Trajectory]
) -> Found:
    """What the numbers of the prompts' tokens say of tokenizer, template, system prompt, context."""
    asked: Chat = [{"role": "user", "content": "."}]
    probes: dict[str, Chat] = {
        "plain": asked,
        "longer": [{"role": "user", "content": QUESTION}],
        "system": [{"role": "system", "content": QUESTION}, *asked],
    }
    one = Sampling(temperature=0.0, max_tokens=1)
    extra: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for name, chat in probes.items():
        # a template may know no system message
        with suppress(*([PlumblineError] if name == "system" else [])):
            lengths[name] = policy.prompt_length(chat)
            extra[name] = -lengths[name]
            extra[name] += len(_ask(deployed, [chat], one)[0].prompt)
    plain, system = extra["plain"], extra.get("system", 0)
    if plain == -lengths["plain"]:  # it does not say
        return {}
    about = {f"{name}_tokens": f"{count:+}" for name, count in extra.items()}
    if extra["longer"] != plain:
        return {"tokenizer": about}
    if not plain and not system:
        short = sum(
            len(answer.prompt) < policy.prompt_length(chat)
            for answer, chat in zip(theirs, chats, strict=True)
        )
        return {"context": {"prompts": short}} if short else {}
    dropped = not plain and system == lengths["plain"] - lengths["system"]
    return {"system-prompt" if dropped or (plain and not system) else "chat-template": about}


def _compare_limits(theirs: Sequence[Trajectory]) -> Found:
    cut = [
        one.num_tokens
        for one in theirs
        if one.truncated and 0 < one.num_tokens < one.sampling.max_tokens
    ]
    return {"max-tokens": {"answers": len(cut), "tokens": max(cut)}} if cut else {}


def _compare_ends(theirs: Sequence[Trajectory], ours: Sequence[Trajectory]) -> Found:
    """Whether a quarter of the answers begin as they should, and end elsewhere."""
    on = sum(_continues(*pair) for pair in zip(theirs, ours, strict=True))
    before = sum(
        not one.truncated
        and one.text.strip() != other.text.strip()
        and other.text.startswith(one.text.strip())
        for one, other in zip(theirs, ours, strict=True)
    )
    return (
        {"stop-token": {"later": on, "earlier": before}} if 4 * (on + before) >= len(ours) else {}
    )


def _continues(one: Trajectory, other: Trajectory) -> bool:
    """Whether an answer continues behind the end of the trained model's."""
    text, longer = other.text.strip(), one.text.strip()
    begins = bool(text) and not other.truncated and longer.startswith(text)
    return begins and (longer != text or one.num_tokens > other.num_tokens)


class _Evidence:
    """What was answered, as ids of the trained model's tokenizer, and which chats that answers."""

    def __init__(
        self,
        policy: Any,
        theirs: Sequence[Trajectory],
        sampled: Sequence[Trajectory],
        ours: Sequence[Trajectory],
    ) -> None:
        def encode(text: str) -> list[int]:
            return list(policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"])

        self.greedy = [
            (index, encode(other.text if _continues(one, other) else one.text))
            for index, (one, other) in enumerate(zip(theirs, ours, strict=True))
        ]
        self.drawn = [(index, encode(one.text)) for index, one in enumerate(sampled)]
        self.served: list[list[float]] = []
        """Log-probabilities of the drawn tokens, answer by answer; none where the server has none,
        or only those of greedy choices, which are 0."""
        given = [one.logprobs.tolist() if one.transitions else [] for one in sampled]
        if any(map(any, given)):
            # the end of an answer may be counted; in other tokens of the same text it is left out
            pairs = zip(self.drawn, given, strict=True)
            kept = [
                pair for pair in pairs if 0 <= len(pair[1]) - len(pair[0][1]) <= 1 and pair[0][1]
            ]
            self.drawn = [row for row, _ in kept]
            self.served = [values[: len(row[1])] for row, values in kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """What may be served, and how the answers look by it."""

    codes: tuple[str, str]
    """Of its weights and of its prompts; empty where they are the trained ones."""
    source: str
    drawn: "list[Tensor]"
    """See `_score`."""
    greedy: "list[Tensor]"
    distance: float
    """From what is served [nats a token]."""

    @property
    def cost(self) -> float:
        """Its distance, doubled for each fault that it supposes."""
        return float(max(self.distance, EXACT) * 2 ** len(list(filter(None, self.codes))))


def _compare_weights(
    weights: Iterable[tuple[str, str, Any]],
    prompts: Sequence[tuple[str, Sequence[list[int]]]],
    evidence: _Evidence,
    repeats: bool,
    known: bool,
) -> tuple[Found, dict[str, Any]]:
    """Which weights and prompts give the answers, and whether they were drawn as asked.

    Args:
        weights: see `_list_weights`.
        prompts: see `_list_prompts`.
        evidence: what was answered.
        repeats: whether greedy answers were the same when they were asked again.
        known: whether prompts are known to be others.
    """
    import torch

    served = list(map(torch.tensor, evidence.served))
    tried: list[_Candidate] = []
    for code, place, policy in weights:
        for prompt_code, chats in prompts:
            drawn, greedy = (
                _score(policy, [(chats[index], ids) for index, ids in rows if ids])
                for rows in (evidence.drawn, evidence.greedy)
            )
            gaps = [top - own for own, top in greedy]
            if served:
                gaps = [
                    (own - theirs).abs() for (own, _), theirs in zip(drawn, served, strict=True)
                ]
            # the middle answer: one may be of other tokens than its text says
            distance = median([float(gap.mean()) for gap in gaps] or [0.0])
            tried.append(
                _Candidate(
                    codes=(code, prompt_code),
                    source=place,
                    drawn=drawn,
                    greedy=greedy,
                    distance=distance,
                )
            )
        if tried[0].distance <= EXACT:
            break
    trained, best = tried[0], min(tried, key=lambda one: one.cost)
    figures: dict[str, Any] = {"compared": sum(map(len, served)), "mean": None, "largest": None}
    if served:
        gap = (torch.cat(trained.drawn, dim=1)[0] - torch.cat(served)).abs()
        figures |= {"mean": float(gap.mean()), "largest": float(gap.max())}
    found: Found = {}
    about = {"nats": best.distance, "nats_trained": trained.distance}
    weights_code, prompt_code = best.codes
    if prompt_code:
        found[prompt_code] = about
    if weights_code and (prompt_code or not known):
        found[weights_code] = about | ({"model": best.source} if best.source else {})
    (own, top), (asked, most) = (
        torch.cat([torch.zeros(2, 0), *one], dim=1) for one in (best.greedy, best.drawn)
    )
    unlikely = float((top - own > CLEAR).double().sum()) / max(len(own), 1)
    explained = best.distance <= CLOSE or not served
    near = EXACT + 2 * best.distance * bool(served)
    if unlikely > OFTEN and (not repeats or (served and explained)):
        found["temperature"] = {"not_most_probable": unlikely}
    elif explained and float(most.sum()) < -CHANCE and bool((most - asked <= near).all()):
        found["temperature"] = {"most_probable": len(most)}
    elif best.distance > WRONG:
        found["other-weights"] = {"nats": best.distance}
    return found, figures


def _list_prompts(policy: Any, chats: Sequence[Chat]) -> list[tuple[str, list[list[int]]]]:
    """A fault of prompts, and the prompts' ids with it; the trained ones first."""
    silent = [[one for one in messages if one["role"] != "system"] for messages in chats]
    kinds = [("", chats), *([("system-prompt", silent)] if silent != [*map(list, chats)] else [])]
    return [(code, [policy.chat.prompt(messages) for messages in each]) for code, each in kinds]


def _list_weights(source: ExportSource, policy: Any) -> Generator[tuple[str, str, Any]]:
    """A fault of weights, where they are saved, and a policy that has them; the trained ones first.

    Adapters are as they were when this is closed.
    """
    from plumbline.policies.pretrained.adapters import lora_layers

    yield "", "", policy
    base = "" if source.base is None else source.base.source
    if policy.adapter is not None:
        with policy.adapter.disable_adapter():
            yield "base", base, policy
        layers = lora_layers(policy.model)
        try:
            _scale(layers, 2.0)
            yield "adapter-twice", "", policy
        finally:
            _scale(layers, 0.5)
    elif Path(base).exists() and Path(base).absolute() != Path(source.model).absolute():
        yield "base", base, _open(base)[0]
    model = Path(source.model).absolute()
    beside = source.run is not None or model.name.startswith("checkpoint-")
    for folder in [model, *([model.parent] if beside else [])]:
        for place in list(models_in(folder))[:SIBLINGS]:
            if place.absolute() != model:
                yield "other-step", str(place), _open(str(place))[0]


def _scale(layers: Sequence[Any], factor: float) -> None:
    for layer in layers:
        layer.scaling = {name: factor * value for name, value in layer.scaling.items()}


def _score(policy: Any, rows: Sequence[tuple[list[int], list[int]]]) -> "list[Tensor]":
    """Log-probabilities of answers' tokens behind their prompts, and of the most probable ones:
    [2, N] of each answer."""
    import torch

    found = []
    with torch.no_grad():
        for prompt, tokens in rows:
            ids = torch.tensor([[*prompt, *tokens]], device=policy.model.device)
            logits = policy.model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            logprobs = logits.float().log_softmax(-1)
            own = logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0]
            found.append(torch.stack([own, logprobs.max(-1).values]))
    return found
