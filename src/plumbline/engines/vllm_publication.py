"""Weights handed to a vLLM server version by version, and the probe that says whether they are what samples.

Letters in shapes: N tokens of the probe.

A publication is believed when a probe says so: fixed texts are scored by the learner and by the server, before and
after. The server's log-probabilities must move with the learner's. Rounding of its activations moves them, too, in 16
bits by more than the first steps of RL do: their share of the learner's move is judged once rounding cannot explain
it, and until then they must only have changed. vLLM's own checksums are not asked: on a CPU they are those of nothing,
before and after.
"""

import base64
import pickle
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.engines.vllm_client import Choice, Client, Lost
from plumbline.errors import EngineError
from plumbline.records import Message, Sampling, Step, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

    from plumbline.policies.pretrained.merged import Sampled

LEAST = 0.3
"""Share of an update that must arrive. Weights that are multiples of 16-bit steps lose nearly all of a small update,
and others keep nearly all of it on average; below, most of what was learnt is not what samples."""
WRONG = 0.5
"""Nats a token between learner and server from which on they are two models; rounding to 16 bits makes 0.01 to 0.1."""
PROBE: tuple[tuple[str, str], ...] = (
    ("What is the capital of France, and which river runs through it?", "Paris; the Seine runs through it."),
    ("O produto chegou atrasado e com defeito. Qual é o sentimento?", '{"sentiment": "negativo", "nota": 2}'),
    ("Write a query that counts the orders of a month.", "SELECT COUNT(*) FROM orders WHERE month = '2018-03';"),
    ("List three colours, one a line.", "red\ngreen\nblue"),
)


@dataclass(frozen=True, slots=True)
class Probed:
    """Log-probabilities [N] of the probe under one version."""

    learner: NDArray[np.float64]
    server: NDArray[np.float64]


class Publication:
    """The weights that one server has: which, under what name, and how they got there."""

    def __init__(self, how: str, dtype: Any, folder: Path, *, own: bool) -> None:
        """Take the recipe's `engine.publish` (not auto), the server's torch dtype, and where files go."""
        self.how, self.dtype, self.folder, self.own = how, dtype, folder, own
        self.version, self.name = -1, ""
        self.figures: Mapping[str, float] = {}
        self._token = ""
        self._first: Sampled | None = None
        self._anchor: Probed | None = None
        self._last: Probed | None = None

    @property
    def served(self) -> Path:
        """Where full weights are written that an own server reads."""
        return self.folder / "served"

    def know(self, client: Client, policy: Any) -> int:
        """See that a server has a model that can be the learner's: its tokens, its length (which is returned).

        Raises:
            EngineError: it has not.
        """
        served = next((one for one in client.call("/v1/models")["data"] if not one.get("parent")), None)
        if served is None:
            raise EngineError(f"{client.address} serves no model", "start it with the learner's")
        self.base, self._root = str(served["id"]), Path(str(served.get("root") or ""))
        if self.how != "lora" and not self.own:
            try:
                client.call("/weight_info")
            except Lost as lost:
                raise EngineError(
                    f"{client.address} does not let its weights be changed ({lost.cause})",
                    "start it with VLLM_SERVER_DEV_MODE=1 in its environment, on an address that only you reach",
                ) from lost
        text = "".join(question + answer for question, answer in PROBE)
        ours = policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        theirs = client.call("/tokenize", {"model": self.base, "prompt": text, "add_special_tokens": False})
        if theirs["tokens"] != list(ours):
            raise EngineError(
                f"{client.address} serves {self.base}, which has another tokenizer than the learner",
                "start it with the learner's model",
            )
        return min(int(served.get("max_model_len") or policy.context), int(policy.context))

    def is_there(self, client: Client) -> bool:
        """Whether the server still has the weights that it was handed last: it may have been started again."""
        if self.how == "lora":
            return self.name in {one["id"] for one in client.call("/v1/models")["data"]}
        return bool(client.call("/weight_info")["weight_version"] == self._token)

    def hand_over(self, client: Client, policy: Any, version: int) -> float:
        """Write, load and try the policy's present weights; how many seconds writing and loading took.

        Raises:
            Lost: the server broke.
            EngineError: too little of the update is left after rounding, or something else samples.
        """
        began = time.perf_counter()
        if self.how == "lora":
            sampled = self._as_adapter(client, policy, version)
        else:
            sampled = self._whole(client, policy)
            _empty_cache(client)
            self.name, self._token = self.base, f"{uuid.uuid4().hex}:{version}"
            client.call("/update_weight_version", {"new_version": self._token})
        self.version = version
        seconds = time.perf_counter() - began
        self._first = self._first or sampled
        rounding = self._check_rounding(sampled)
        self.figures = {**rounding, **self._check_probe(client, policy, rounding.get("engine/update_arrived", 1.0))}
        return seconds

    def _whole(self, client: Client, policy: Any) -> "Sampled":
        from plumbline.policies.pretrained import merged

        if self.how == "transfer":
            state, sampled = merged.rounded(policy, self.dtype)
            client.call("/init_weight_transfer_engine", {"init_info": {"packed": False}})
            client.call("/start_weight_update", {})
            client.call("/update_weights", {"update_info": handles(state)})
            client.call("/finish_weight_update", {})
            return sampled
        folder = self.served if self.own else self._root
        if not self.own and not (folder / merged.MARK).is_file():
            raise EngineError(
                f"{client.address} serves {folder}, which is not known here as a folder to overwrite",
                f"serve a copy of the model, put an empty file {merged.MARK} into it, or set engine.publish: lora",
            )
        sampled = merged.write_full(policy, folder, self.dtype)
        client.call("/collective_rpc", {"method": "reload_weights"})
        return sampled

    def _as_adapter(self, client: Client, policy: Any, version: int) -> "Sampled":
        """Under a name and at a path of its own: at an old path the server's cache of prompts would stay."""
        from plumbline.policies.pretrained.merged import write_adapter

        name = f"lora-{version}-{uuid.uuid4().hex[:8]}"
        sampled = write_adapter(policy, self.folder / name, self.dtype)
        client.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str((self.folder / name).resolve())})
        old, self.name = self.name, name
        for path in self.folder.glob("lora-*"):
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)
        if old:
            with suppress(Lost):  # a server that was started again has never heard of it
                client.call("/v1/unload_lora_adapter", {"lora_name": old})
        return sampled

    def _check_rounding(self, now: "Sampled") -> dict[str, float]:
        from plumbline.policies.pretrained.merged import arrived

        assert self._first is not None
        found = arrived(self._first, now)
        if found is None:
            return {}
        if found.share < LEAST:
            kind = str(self.dtype).removeprefix("torch.")
            raise EngineError(
                f"{found.share:.1%} of what was learnt since this stage began is left when weights are rounded to "
                f"{kind} ({found.elements:.1%} of the elements change): the server would sample with the old weights",
                "set engine.publish: lora, or serve float32 (engine.arguments: [--dtype, float32])",
            )
        return {
            "engine/update_arrived": found.share,
            "engine/update_elements": found.elements,
            "engine/update_noise": found.noise,
        }

    def _check_probe(self, client: Client, policy: Any, due: float) -> dict[str, float]:
        """Whether the server made at least half of the share `due` of the learner's change."""
        now = _probe(client, policy, self.name)
        gap = float(np.abs(now.learner - now.server).mean())
        if not gap <= WRONG:
            raise EngineError(
                f"the server's log-probabilities of the probe are {gap:.2f} nats a token from the learner's: it serves "
                f"another model ({self.base}), or other weights of it",
                "start it with the learner's model, or let the run start its own (without engine.address)",
            )
        figures = {"engine/probe_gap": gap}
        if self._anchor is None or self._last is None:
            self._anchor = now
        elif (found := moved(self._anchor, now)) is not None:
            share, bound = found
            still = np.array_equal(now.server, self._last.server)
            if (still and not np.array_equal(now.learner, self._last.learner)) or share + bound < due / 2:
                raise EngineError(
                    f"version {self.version} was handed over, and the server still samples with older weights: of the "
                    f"learner's change of the probe's log-probabilities it made {share:.2f} +- {bound:.2f}",
                    "use the version of vLLM that docs/vllm.md names, or another engine.publish",
                )
            if share - bound > due / 2:
                self._anchor = now  # what follows is told from this version
            figures |= {"engine/probe_moved": share, "engine/probe_moved_bound": bound}
        self._last = now
        return figures


def _empty_cache(client: Client) -> None:
    """Drop what the server remembers of prompts; it refuses while an abandoned request still runs."""
    for _ in range(50):
        answer = client.call("/reset_prefix_cache", {})
        if answer is None or answer.get("success", True):
            return
        time.sleep(0.1)
    raise EngineError("the server does not empty its prefix cache: somebody else uses it", "give the run its own")


def _probe(client: Client, policy: Any, name: str) -> Probed:
    """The probe's log-probabilities under the learner's and the server's present weights.

    The learner's in float32: in 16 bits the rounding of its activations would hide what one step of RL changes.
    """
    import torch

    from plumbline.policies.pretrained.trial import in_float32

    sequences, exact = [], []
    with torch.no_grad(), in_float32(policy.model):
        for question, answer in PROBE:
            chat: list[Message] = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            tokens = list(policy.chat.demonstration(chat).tokens)[: policy.context - 1]
            ids = torch.tensor([tokens], device=policy.device)
            logprobs = policy.model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            exact.append(logprobs.gather(-1, ids[0, 1:, None]).flatten().double().cpu().numpy())
            sequences.append(tokens)
    return Probed(np.concatenate(exact), np.concatenate([np.array(row) for row in client.score(sequences, name)]))


def moved(before: Probed, now: Probed) -> tuple[float, float] | None:
    """The share of the learner's change of log-probabilities that the server made, and how far rounding can move it.

    The slope of a line through the origin: server's change on learner's change, token by token. Between two versions
    that arrived, the server's change differs from the learner's by two rounding errors, each about as long as that of
    `before`; by Cauchy and Schwarz they move the slope by at most the sum of their lengths over that of the learner's
    change. A standard error would be too small: the tokens of a text share what its first ones are rounded to, and a
    few tokens make most of a change. None where the learner has not changed.
    """
    wanted, got = now.learner - before.learner, now.server - before.server
    size = float(np.linalg.norm(wanted))
    if not size:
        return None
    rounding = float(np.linalg.norm(before.server - before.learner))
    return float(got @ wanted) / size**2, 2 * rounding / size


def trajectory_of(
    prompt: Sequence[int], choice: Choice, sampling: Sampling, text: str = "", version: int = 0
) -> Trajectory:
    """An answer as the learner scores it."""
    step = Step(
        positions=np.arange(len(choice.tokens)),
        tokens=np.array(choice.tokens, dtype=np.int64),
        logprobs=np.array(choice.logprobs, dtype=np.float32),
    )
    return Trajectory(
        prompt=np.array(prompt, dtype=np.int64),
        steps=(step,),
        text=text,
        sampling=sampling,
        finish="stop" if choice.stopped else "length",
        version=version,
    )


def handles(state: Mapping[str, "Tensor"]) -> dict[str, Any]:
    """What vLLM's transfer by CUDA IPC is told of weights that lie on a GPU that learner and server share.

    Raises:
        EngineError: they lie elsewhere.
    """
    import torch
    from torch.multiprocessing.reductions import reduce_tensor

    where = next(iter(state.values())).device
    if where.type != "cuda":
        raise EngineError(
            f"publish: transfer hands over memory of a GPU, and the weights are on {where}",
            "set engine.publish: full or lora",
        )
    uuid = str(torch.cuda.get_device_properties(where).uuid)
    return told(state, [{uuid: reduce_tensor(weight.contiguous())[1]} for weight in state.values()])


def told(state: Mapping[str, "Tensor"], each: list[Any]) -> dict[str, Any]:
    """The body of vLLM's `/update_weights`: names, dtypes, shapes, and where each weight is found."""
    return {
        "names": list(state),
        "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in state.values()],
        "shapes": [list(weight.shape) for weight in state.values()],
        "ipc_handles_pickled": base64.b64encode(pickle.dumps(each)).decode(),
    }
