"""Weights handed to a vLLM server version by version, and believed to be there once a probe says so.

vLLM's own checksums are not asked: on a CPU they are those of nothing, before and after.
"""

import base64
import pickle
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from plumbline.engines.vllm_client import Client, Lost
from plumbline.errors import EngineError
from plumbline.policies.pretrained.arrival import PROBE, Arrivals, Pair, probe

PREFIX = "plumbline-"
"""What the names of versions begin with, and the folders of weights that were written for a server."""


class Publication:
    """The weights that one server has: which, under what name, and how they got there."""

    def __init__(self, how: str, dtype: Any, folder: Path, *, own: bool) -> None:
        """Take the recipe's `engine.publish` (not auto), the server's torch dtype, and where files go."""
        self.how, self.dtype, self.folder, self.own = how, dtype, folder, own
        self.version, self.context = -1, 0
        self.base = self._root = self._token = ""
        self.figures: Mapping[str, float] = {}
        self._arrivals = Arrivals()

    @property
    def served(self) -> Path:
        """Where full weights are written that the server reads."""
        return self.folder / f"{PREFIX}served" if self.own else Path(self._root)

    @property
    def name(self) -> str:
        """What the server calls the weights."""
        return self._token if self.how == "lora" else self.base

    def are_there(self, client: Client, policy: Any) -> bool:
        """Whether a server has the weights that it was handed last: it may be another one, or have been started again.

        Raises:
            Lost: the server broke.
            EngineError: its model cannot be the learner's: it has another tokenizer.
        """
        base, *adapters = client.call("/v1/models")["data"]
        self.base, self._root = str(base["id"]), str(base.get("root"))
        self.context = min(int(base.get("max_model_len") or policy.context), policy.context)
        text = str(PROBE)
        ours = policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        theirs = client.call("/tokenize", {"model": self.base, "prompt": text, "add_special_tokens": False})
        if theirs["tokens"] != ours:
            raise EngineError(
                f"{client.address} serves {self.base}, which has another tokenizer than the learner",
                "start it with the learner's model",
            )
        if self.how == "lora":
            return self._token in {one["id"] for one in adapters}
        return bool(client.call("/weight_info")["weight_version"] == self._token)

    def hand_over(self, client: Client, policy: Any, version: int) -> float:
        """Write, load and try the policy's present weights; how many seconds writing and loading took.

        Raises:
            Lost: the server broke.
            EngineError: too little of the update is left after rounding, or something else samples.
        """
        import torch

        from plumbline.policies.pretrained.trial import exact_logprobs

        began = time.perf_counter()
        self._token = f"{PREFIX}{version}-{uuid.uuid4().hex[:8]}"
        rounding = self._arrivals.check_rounding(self._load(client, policy), self.dtype)
        seconds = time.perf_counter() - began
        sequences = probe(policy.chat, self.context)
        served = torch.tensor(client.score(sequences, self.name), dtype=torch.float64)
        now = Pair(exact_logprobs(policy.model, sequences), served)
        due = rounding.get("engine/update_arrived", 1.0)
        self.figures = {**rounding, **self._arrivals.check_probe(now, due)}
        self.version = version
        return seconds

    def _load(self, client: Client, policy: Any) -> Pair:
        """Write the weights and have the server load them under the present token; what was rounded."""
        from plumbline.policies.pretrained import merged

        if self.how == "lora":
            old, new = list(self.folder.glob(f"{PREFIX}*")), self.folder / self._token
            weights = merged.write_adapter(policy, new, self.dtype)  # at an old path its cache of prompts would stay
            client.call("/v1/load_lora_adapter", {"lora_name": new.name, "lora_path": str(new.resolve())})
            for folder in old:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(Lost):  # a server that was started again has never heard of it
                    client.call("/v1/unload_lora_adapter", {"lora_name": folder.name})
            return weights
        if self.how == "transfer":
            state, weights = merged.rounded(policy, self.dtype)
            update = {
                "names": list(state),
                "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in state.values()],
                "shapes": [list(weight.shape) for weight in state.values()],
                "ipc_handles_pickled": base64.b64encode(pickle.dumps(merged.handles(state))).decode(),
            }
            client.call("/init_weight_transfer_engine", {"init_info": {"packed": False}})
            client.call("/start_weight_update", {})
            client.call("/update_weights", {"update_info": update})
            client.call("/finish_weight_update", {})
        else:
            if not (self.served / merged.MARK).is_file():
                raise EngineError(
                    f"{client.address} serves {self.served}, which is not known here as a folder to overwrite",
                    f"serve a copy of the model, put an empty file {merged.MARK} into it, or set engine.publish: lora",
                )
            weights = merged.write_full(policy, self.served, self.dtype)
            client.call("/collective_rpc", {"method": "reload_weights"})
        client.call("/reset_prefix_cache?reset_running_requests=true", {})  # an abandoned one may still run
        client.call("/update_weight_version", {"new_version": self._token})
        return weights
