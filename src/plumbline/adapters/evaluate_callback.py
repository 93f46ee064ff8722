"""Evaluation on held-out rows while a trainer of TRL or transformers trains, with intervals, and
the best checkpoint.

Which checkpoint is best is a comparison of the same prompts: Student's interval of the paired
differences and a test by sign flips, both of `plumbline.evaluation.statistics`
(docs/statistics.md).
"""

import asyncio
import inspect
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plumbline.adapters.callback import CallbackBase
from plumbline.config.imports import note_addresses
from plumbline.errors import DataError, RecipeError
from plumbline.evaluation.statistics import (
    PairedDifference,
    mean_interval,
    paired_difference,
)
from plumbline.storage import read_jsonl, read_object, write_json, write_jsonl
from plumbline.tasks.jsonl.files import read_rows

_log = logging.getLogger("plumbline")
FOLDER, BEST, FACTS = "evaluations", "best", "evaluation.json"


@dataclass(frozen=True, slots=True)
class StepRewards:
    """The reward [n] of each held-out row at one step; NaN where no function gave any."""

    step: int
    rewards: tuple[float, ...]


class EvaluateCallback(CallbackBase):
    """Evaluates greedily before the first step, every so many steps and at the end, and keeps the
    best checkpoint.

    It logs `eval_mean_reward` with `_low`, `_high` (95 %) and `_n`, and `eval_change` since the
    first evaluation with `_low`, `_high` and `_p`; trackers show these as `eval/...`. Answers stand
    in OUTPUT_DIR/evaluations/step-N.jsonl. The best model stands in OUTPUT_DIR/best, with
    `evaluation.json` beside it: it is replaced by one that is better beyond chance, or that is
    neither better nor worse beyond chance and has the higher mean. The highest of several noisy
    means is too high, so report that of other rows. The main process evaluates while the others
    wait; what goes wrong is said once, and costs the training nothing.

    Args:
        trainer: of TRL or transformers, with a causal language model that is whole on every rank
            (no FSDP, DeepSpeed).
        rows: a file of prompts and columns (JSON lines, CSV, Parquet) or `hf://...`; prompts are
            texts or messages.
        score: a function of TRL's signature, or several, whose rewards add up; None: the trainer's
            `reward_funcs`, with its weights.
        every: steps from one evaluation to the next.
        limit: the first so many rows.
        keep: "best", or None to keep no checkpoint.
        prompt: the column of prompts.
        cluster: the column with what rows share that are alike.
        max_new_tokens: of an answer; None: the trainer's `max_completion_length`, else 256.
        batch: prompts that are answered together.

    Raises:
        RecipeError: there is no scoring function, or one is a model.
        DataError: rows are missing or have no such column.

    Example:
        trainer.add_callback(EvaluateCallback(trainer, "heldout.jsonl", every=50))
    """

    what = "evaluations"

    def __init__(
        self,
        trainer: Any,
        rows: str | Path,
        score: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        every: int = 50,
        *,
        limit: int | None = None,
        keep: str | None = "best",
        prompt: str = "prompt",
        cluster: str | None = None,
        max_new_tokens: int | None = None,
        batch: int = 16,
    ) -> None:
        self.trainer, self.every, self.keep = trainer, max(1, every), keep
        self.prompt, self.batch = prompt, batch
        own = getattr(trainer, "reward_funcs", ()) if score is None else score
        self.scores = [own] if callable(own) else list(own)
        if (
            not self.scores
            or not all(map(inspect.isroutine, self.scores))
            or keep not in {"best", None}
        ):
            raise RecipeError(
                "EvaluateCallback needs functions that score, and keep is 'best' or None",
                "give score=function(completions, prompts, **columns) -> list; a reward model is "
                "none",
            )
        weights = getattr(trainer, "reward_weights", None) if score is None else None
        self.weights = [1.0] * len(self.scores) if weights is None else [*map(float, weights)]
        note_addresses([str(rows)])
        self.rows = [row for _, row in read_rows(str(rows))][:limit]
        if not self.rows or any(
            name not in row for row in self.rows for name in (prompt, cluster) if name is not None
        ):
            raise DataError(
                f"{rows} has no rows, or one without its columns",
                f"each needs {prompt} {cluster or ''}",
            )
        self.clusters = None if cluster is None else [str(row[cluster]) for row in self.rows]
        self.length = max_new_tokens or getattr(trainer.args, "max_completion_length", None) or 256
        self.first: StepRewards | None = None
        self.best: StepRewards | None = None
        self.last: StepRewards | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - transformers'
        """Evaluate what the training begins with; where it resumes, take up what was evaluated."""
        if state.is_world_process_zero:
            self.failed, self.first, self.best, self.last = False, None, None, None
            self._safely(self._begin, args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - transformers'
        """Evaluate where it is time to."""
        if state.is_world_process_zero and not self.failed and state.global_step % self.every == 0:
            self._safely(self._evaluate, args, state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - transformers'
        """Evaluate the last model, if its step was none of those."""
        done = self.last is not None and self.last.step == state.global_step
        if state.is_world_process_zero and not self.failed and not done:
            self._safely(self._evaluate, args, state)

    def _begin(self, args: Any, state: Any) -> None:
        if getattr(self.trainer, "is_fsdp_enabled", False) or getattr(
            self.trainer, "is_deepspeed_enabled", False
        ):
            raise RecipeError(
                "the model's weights lie on several ranks",
                "evaluate a checkpoint after the training",
            )
        folder = Path(args.output_dir) / FOLDER
        steps = sorted(
            int(one.stem[5:]) for one in folder.glob("step-*.jsonl") if one.stem[5:].isdecimal()
        )
        before = [step for step in steps if step <= state.global_step] if state.global_step else []
        if before:
            self.first, self.last = self._read(folder, before[0]), self._read(folder, before[-1])
            facts = Path(args.output_dir) / BEST / FACTS
            self.best = (
                self._read(folder, int(read_object(facts)["step"])) if facts.exists() else None
            )
        if self.last is None or self.last.step != state.global_step:
            self._evaluate(args, state)

    def _read(self, folder: Path, step: int) -> StepRewards:
        rewards = tuple(
            math.nan if row["reward"] is None else row["reward"]
            for _, row in read_jsonl(folder / f"step-{step}.jsonl")
        )
        if len(rewards) != len(self.rows):
            raise DataError(f"{folder} holds evaluations of other rows", "move it away")
        return StepRewards(step, rewards)

    def _evaluate(self, args: Any, state: Any) -> None:
        texts = self._answers()
        now = StepRewards(state.global_step, tuple(self._rewards(texts)))
        self.first, self.last = self.first or now, now
        rows = zip(self.rows, texts, now.rewards, strict=True)
        kept = [
            {
                "prompt": row[self.prompt],
                "completion": text,
                "reward": None if math.isnan(reward) else reward,
            }
            for row, text, reward in rows
        ]
        write_jsonl(Path(args.output_dir) / FOLDER / f"step-{now.step}.jsonl", kept)
        scored, _, clusters = self._paired_rewards(now, now)
        mean, change = mean_interval(scored, clusters), self._compare_pairs(self.first, now)
        values = {
            "eval_mean_reward": mean.mean,
            "eval_mean_reward_low": mean.low,
            "eval_mean_reward_high": mean.high,
            "eval_mean_reward_n": mean.n,
        }
        if now is not self.first:
            apart = change.difference
            values |= {
                "eval_change": apart.mean,
                "eval_change_low": apart.low,
                "eval_change_high": apart.high,
                "eval_change_p": change.p_value,
            }
        if self.keep is not None:
            self._choose(args, now, mean)
            values["eval_best_step"] = self.best.step if self.best else now.step
        import transformers

        control, due = self.trainer.control, self.trainer.control.should_log
        # TRL's own would log the means of unfinished steps with it
        transformers.Trainer.log(self.trainer, values)
        # which a log sets back: the trainer's own row of this step would be lost
        control.should_log = due

    def _choose(self, args: Any, now: StepRewards, mean: Any) -> None:
        """Keep this model where it is the best so far, and say how sure that is."""
        facts: dict[str, Any] = {"step": now.step, "mean_reward": asdict(mean)}
        if self.best is not None:
            change = self._compare_pairs(self.best, now)
            found = change.direction
            said = (
                f"{change.difference:+.3f} on step {self.best.step} (n = {mean.n}), p = "
                f"{change.p_value:.3f}"
            )
            if found == "fall" or (found == "same" and not change.difference.mean > 0):
                _log.info("step %d: %s; step %d stays the best", now.step, said, self.best.step)
                return
            sure = "better" if found == "rise" else "not surely better, the higher mean"
            _log.info("step %d: %s: %s; it is kept", now.step, said, sure)
            facts |= {
                "instead_of": self.best.step,
                "change": asdict(change.difference),
                "p": change.p_value,
                "sure": found == "rise",
            }
        best = Path(args.output_dir) / BEST
        new, old = best.with_name(f"{BEST}.new"), best.with_name(f"{BEST}.old")
        shutil.rmtree(new, ignore_errors=True)
        self.trainer.save_model(str(new))
        write_json(new / FACTS, facts)
        shutil.rmtree(old, ignore_errors=True)
        if best.exists():
            best.rename(old)
        new.rename(best)
        shutil.rmtree(old, ignore_errors=True)
        self.best = now

    def _paired_rewards(
        self, before: StepRewards, now: StepRewards
    ) -> tuple[list[float], list[float], list[str] | None]:
        """The rewards [n] of both for the rows that both have one for, and the rows' clusters."""
        pairs = zip(before.rewards, now.rewards, strict=True)
        known = [at for at, pair in enumerate(pairs) if not any(map(math.isnan, pair))]
        clusters = None if self.clusters is None else [self.clusters[at] for at in known]
        return [before.rewards[at] for at in known], [now.rewards[at] for at in known], clusters

    def _compare_pairs(self, before: StepRewards, now: StepRewards) -> PairedDifference:
        return paired_difference(*self._paired_rewards(before, now))

    def _answers(self) -> list[str]:
        """The greedy answer to every row [n]."""
        import torch

        tokenizer = getattr(
            self.trainer.processing_class, "tokenizer", self.trainer.processing_class
        )
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        texts, training = [], model.training
        padding = (
            tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        )
        model.eval()
        try:
            for start in range(0, len(self.rows), self.batch):
                asked = [row[self.prompt] for row in self.rows[start : start + self.batch]]
                tokens = [self._tokens(tokenizer, one) for one in asked]
                longest = max(map(len, tokens))
                shown = [[0] * (longest - len(one)) + [1] * len(one) for one in tokens]
                rows = [[padding] * (longest - len(one)) + one for one in tokens]
                ids, mask = (torch.tensor(one, device=model.device) for one in (rows, shown))
                with torch.no_grad():
                    made = model.generate(
                        input_ids=ids,
                        attention_mask=mask,
                        max_new_tokens=self.length,
                        do_sample=False,
                        pad_token_id=padding,
                    )
                texts += tokenizer.batch_decode(made[:, longest:], skip_special_tokens=True)
        finally:
            model.train(training)
        return texts

    @staticmethod
    def _tokens(tokenizer: Any, prompt: Any) -> list[int]:
        """As the trainer of TRL reads it: messages by the template, a text as it is."""
        if isinstance(prompt, str):
            return list(tokenizer(prompt)["input_ids"])
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def _rewards(self, texts: Sequence[str]) -> list[float]:
        """The weighted sum of the functions for every row [n], as TRL adds them: without those that
        are None or NaN."""
        prompts = [row[self.prompt] for row in self.rows]
        pairs = zip(prompts, texts, strict=True)
        completions = [
            one if isinstance(asked, str) else [{"role": "assistant", "content": one}]
            for asked, one in pairs
        ]
        names = {name for row in self.rows for name in row} - {self.prompt}
        columns = {
            **{name: [row.get(name) for row in self.rows] for name in names},
            "prompts": prompts,
            "completions": completions,
            "trainer_state": self.trainer.state,
            "log_extra": lambda *_: None,
            "log_metric": lambda *_: None,
        }
        sums = [math.nan] * len(texts)
        for score, weight in zip(self.scores, self.weights, strict=True):
            for at, value in enumerate(_call_score(score, columns, len(texts))):
                if value is not None and not math.isnan(value):
                    sums[at] = weight * value + (0.0 if math.isnan(sums[at]) else sums[at])
        return sums


def _call_score(
    score: Callable[..., Any], columns: Mapping[str, Any], count: int
) -> list[float | None]:
    parameters = inspect.signature(score).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    found = score(
        **{name: value for name, value in columns.items() if takes_all or name in parameters}
    )
    found = list(asyncio.run(found) if inspect.iscoroutine(found) else found)
    if len(found) != count:
        raise DataError(
            f"{score.__name__} gave {len(found)} rewards for {count} answers", "return one for each"
        )
    return [None if one is None else float(one) for one in found]
