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
from plumbline.policies.pretrained.arrival import TEXT, Arrivals, Pair, check_tokenizer, probe

PREFIX = "plumbline-"  # what the names of versions begin with, and the folders of weights for a server


class Publication:
    """The weights that one server has: which, under what name, and how they got there."""

    def __init__(self, how: str, dtype: Any, folder: Path) -> None:
        """Take the recipe's `engine.publish` (not auto), the server's torch dtype, and where files go.

        `token` says which weights were handed over, and `name` what the server calls them; both are empty before.
        """
        self.how, self.dtype, self.folder, self.served = how, dtype, folder, folder / f"{PREFIX}served"
        self.base = self.name = self.token = ""
        self.context = 0
        self._arrivals = Arrivals()

    def are_there(self, client: Client, policy: Any) -> bool:
        """Whether a server has the weights that it was handed last: it may be another one, or have been started again.

        Raises:
            Lost: the server broke.
            EngineError: its model cannot be the learner's: it has another tokenizer.
        """
        base, *adapters = client.call("/v1/models")["data"]
        self.base = str(base["id"])
        self.context = min(int(base.get("max_model_len") or policy.context), policy.context)
        asked = {"model": self.base, "prompt": TEXT, "add_special_tokens": False}
        check_tokenizer(policy.chat, client.call("/tokenize", asked)["tokens"])
        if self.how == "lora":
            return self.token in {one["id"] for one in adapters}
        return bool(client.call("/weight_info")["weight_version"] == self.token)

    def hand_over(self, client: Client, policy: Any, version: int) -> tuple[float, Mapping[str, float]]:
        """Write, load and try the policy's present weights.

        Returns:
            How many seconds writing and loading took, and how much of them arrived, by the names of metrics.

        Raises:
            Lost: the server broke.
            EngineError: too little of the update is left after rounding, or something else samples.
        """
        from plumbline.policies.pretrained.trial import exact_logprobs

        began = time.perf_counter()
        token = f"{PREFIX}{version}-{uuid.uuid4().hex[:8]}"
        name = token if self.how == "lora" else self.base
        rounding = self._arrivals.check_rounding(self._load(client, policy, token), self.dtype)
        seconds = time.perf_counter() - began
        sequences = probe(policy.chat, self.context)
        exact = exact_logprobs(policy.model, sequences)
        served = exact.new_tensor(client.score(sequences, name))
        moved = self._arrivals.check_probe(Pair(exact, served), rounding.get("engine/update_arrived", 1.0))
        self.name, self.token = name, token
        return seconds, {**rounding, **moved}

    def _load(self, client: Client, policy: Any, token: str) -> Pair:
        """Write the weights and have the server load them under a token; what was rounded."""
        from plumbline.policies.pretrained import adapters

        if self.how == "lora":
            old, new = list(self.folder.glob(f"{PREFIX}*")), self.folder / token
            weights = adapters.write_adapter(policy, new, self.dtype)  # at an old path its cache of prompts would stay
            client.call("/v1/load_lora_adapter", {"lora_name": new.name, "lora_path": str(new.resolve())})
            for folder in old:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(Lost):  # a server that was started again has never heard of it
                    client.call("/v1/unload_lora_adapter", {"lora_name": folder.name})
            return weights
        if self.how == "transfer":
            state, weights = adapters.rounded(policy, self.dtype)
            update = {
                "names": list(state),
                "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in state.values()],
                "shapes": [list(weight.shape) for weight in state.values()],
                "ipc_handles_pickled": base64.b64encode(pickle.dumps(adapters.handles(state))).decode(),
            }
            client.call("/init_weight_transfer_engine", {"init_info": {"packed": False}})
            client.call("/start_weight_update", {})
            client.call("/update_weights", {"update_info": update})
            client.call("/finish_weight_update", {})
        else:
            weights = adapters.write_full(policy, self.served, self.dtype)
            read = {"weights_path": str(self.served.resolve())}
            client.call("/collective_rpc", {"method": "reload_weights", "kwargs": read})
        client.call("/reset_prefix_cache?reset_running_requests=true", {})  # an abandoned one may still run
        client.call("/update_weight_version", {"new_version": token})
        return weights
