"""Memory and time of a run, from the model's shape, the lengths of prompts and answers, and this machine's rates.

A causal model's time is in three kinds of work: tokens that are trained on, which cost products; steps of decoding,
which cost a reading of the weights each and products for every answer; and prompts that are read. How far our code
stays behind the machine's limits stands in `BEHIND`, fitted on measured runs (docs/benchmarks.md, "The estimate of a
dry run"). `training.forecast` measures instead, where a run has its model open.
"""

import math
from dataclasses import dataclass

from plumbline.checks.preflight.machine import Machine
from plumbline.checks.preflight.shapes import Shapes
from plumbline.policies.options import PretrainedModel
from plumbline.recipe import LoraSection, Recipe, RlSection, SftSection

PROCESS = 0.6e9
"""Bytes of Python, torch and transformers, and of what opening a model leaves behind."""
ADAM = 16
"""Bytes of a trained weight in 32 bits or with a 32-bit copy: weight, gradient, two moments."""
SPREAD, SPREAD_UPDATE = 1.25, 2.0
"""What activations take over the sum of their sizes, in SFT and in an update of RL: holes between tensors, and what
lives for a moment; passes of many sizes leave more holes, and an update keeps parts of its gradient beside."""
JOINED = 1024
"""Tokens of an update's pass on a CPU, unless one prompt's answers are more (`autoregressive.policy`)."""
ROWS = {True: 64, False: 512}
"""Answers that are drawn at once on a CPU, and on a GPU."""
LOGITS = {True: 2**23, False: 2**25}
"""Logits of a slice of the head on a CPU, and on a GPU (`pretrained.head`)."""
DECODING_LAYER, TRAINING_LAYER = 1e-4, 1e-3
"""Seconds that a layer takes at least, in a decoding step and in a pass with gradient."""


@dataclass(frozen=True, slots=True)
class Behind:
    """How many times the machine's limit our code takes."""

    supervised: float
    """A step of SFT: of its products."""
    update: float
    """An update of RL, in smaller passes: of its products."""
    readings: float
    """A decoding step: readings of the weights ..."""
    products: float
    """... and, for each answer in it, of its products."""


BEHIND = {
    ("float32", False): Behind(1.4, 2.0, 7.0, 4.0),
    ("float32", True): Behind(2.0, 3.0, 9.0, 4.5),
    ("bfloat16", False): Behind(2.5, 4.0, 7.0, 4.0),
    ("bfloat16", True): Behind(3.3, 5.5, 9.0, 4.5),
}
"""By dtype, and whether LoRA adapters are trained. Two of them are fitted: float32 without adapters on a tiny model,
bfloat16 with adapters on SmolLM2-135M; decoding on benchmarks/real.py, both. The others are our judgement."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and of gold answers: their means, and the longest."""

    prompt: float
    longest_prompt: int
    answer: float
    longest_answer: int


@dataclass(frozen=True, slots=True)
class Work:
    """What of a recipe decides its cost."""

    recipe: Recipe
    shapes: Shapes
    lengths: Lengths
    evaluated: int
    """Answers that the evaluations after one stage ask for."""
    untrained: int
    """Answers that the evaluations of the untrained model ask for."""
    inside: int
    """Answers of all evaluations inside RL."""
    train: int
    """Training examples."""

    @property
    def lora(self) -> LoraSection | None:
        """The adapters that are trained; None trains every weight."""
        model = self.recipe.model
        return model.lora if isinstance(model, PretrainedModel) else None

    @property
    def recomputes(self) -> bool:
        """Whether activations are computed anew in the backward pass."""
        model = self.recipe.model
        return isinstance(model, PretrainedModel) and model.gradient_checkpointing is True

    @property
    def sft_steps(self) -> int:
        """Steps of SFT."""
        sft = self.recipe.sft
        if sft is None:
            return 0
        return sft.steps or max(1, round((sft.epochs or 0) * math.ceil(self.train / sft.batch_size)))

    @property
    def longest_drawn(self) -> int:
        """Tokens of the longest answer that a trained model is expected to write."""
        return min(self.recipe.sampling.max_tokens, self.lengths.longest_answer)

    def rows_at_once(self, machine: Machine) -> int:
        """Answers that are drawn side by side, at most."""
        return self.recipe.model.rows_at_once or ROWS[machine.on_cpu]


def memory(work: Work, machine: Machine) -> dict[str, float]:
    """Bytes at the peak by what takes them; `total` is their sum, with the largest of the stages alone.

    On a CPU it is what the process takes, on a GPU what its tensors do.
    """
    shapes, bytes_each = work.shapes, machine.dtype_bytes
    model = work.recipe.model
    quantized = isinstance(model, PretrainedModel) and model.quantize is not None
    trained = shapes.parameters if work.lora is None else shapes.adapters(work.lora.rank)
    rl = work.recipe.rl
    fixed = {
        "process": PROCESS if machine.on_cpu else 0.0,
        "weights": shapes.parameters * (0.6 if quantized else bytes_each),
        "gradients and optimiser": float(trained * ADAM),
        "reference": 0.0 if rl is None or rl.beta == 0 else float(trained * bytes_each),
    }
    stages = {
        "sft pass": 0.0 if work.recipe.sft is None else _supervised_pass(work, work.recipe.sft, machine),
        "rl update pass": 0.0 if rl is None else _update_pass(work, rl, machine),
        "drawing": _drawing(work, machine),
    }
    return {**fixed, **stages, "total": sum(fixed.values()) + max(stages.values())}


def _activations(work: Work, tokens: float, targets: float, machine: Machine, spread: float) -> float:
    """Bytes that a pass with gradient keeps: of each layer what its backward pass needs, and a slice of logits."""
    shapes, bytes_each = work.shapes, machine.dtype_bytes
    queries, keys = shapes.heads * shapes.head_size, shapes.kv_heads * shapes.head_size
    layer = (8 * shapes.hidden + 3 * queries + 4 * keys + 4 * shapes.inner) * bytes_each
    kept = shapes.hidden * bytes_each * shapes.layers + layer if work.recomputes else layer * shapes.layers
    rows = max(1, min(int(targets), LOGITS[machine.on_cpu] // shapes.vocabulary))
    return spread * tokens * kept + rows * shapes.vocabulary * (bytes_each + 8) + 2 * targets * shapes.hidden * 4


def _supervised_pass(work: Work, sft: SftSection, machine: Machine) -> float:
    most = sft.on_cpu if sft.tokens_per_pass == "auto" else sft.tokens_per_pass  # noqa: S105 - no password
    whole = sft.batch_size * (work.lengths.longest_prompt + work.lengths.longest_answer)
    tokens = min(most, whole)
    return _activations(work, tokens, tokens / whole * sft.batch_size * work.lengths.longest_answer, machine, SPREAD)


def _update_pass(work: Work, rl: RlSection, machine: Machine) -> float:
    most = rl.on_cpu if rl.tokens_per_pass == "auto" else rl.tokens_per_pass  # noqa: S105 - no password
    group = work.lengths.longest_prompt + rl.group_size * work.longest_drawn
    everything = rl.prompts_per_step * group
    tokens = min(most, everything, max(group, JOINED) if machine.on_cpu else everything)
    return _activations(work, tokens, tokens * (1 - work.lengths.longest_prompt / group), machine, SPREAD_UPDATE)


def _drawing(work: Work, machine: Machine) -> float:
    """Bytes of the caches of the answers that are drawn at once, of their logits, and of reading their prompts."""
    shapes, lengths = work.shapes, work.lengths
    rl = work.recipe.rl
    drawn = 0 if rl is None else rl.prompts_per_step * rl.group_size
    rows = min(work.rows_at_once(machine), max(drawn, work.evaluated))
    prompts = min(rows, work.evaluated) if work.evaluated else min(rows, rl.prompts_per_step if rl else rows)
    answers = rows * work.recipe.sampling.max_tokens * shapes.cached * machine.dtype_bytes
    read = prompts * lengths.longest_prompt
    reading = read * (shapes.cached + 4 * shapes.inner + 6 * shapes.hidden) * machine.dtype_bytes
    return answers + reading + rows * shapes.vocabulary * 16.0


def seconds(work: Work, machine: Machine) -> dict[str, float]:
    """Seconds of each kind of work of a run: base, sft, rl and evaluations, those of them that it has.

    Answers are taken to be as long as the gold ones, and before any training as long as they may be.
    """
    recipe, lengths = work.recipe, work.lengths
    behind = BEHIND[machine.dtype, work.lora is not None]
    found: dict[str, float] = {}
    example = lengths.prompt + lengths.answer
    if recipe.model.name is None and (tiny := recipe.model.tiny) is not None:
        full = _training(work, tiny.batch_size * example, tiny.batch_size * lengths.answer, machine, whole=True)
        found["base"] = tiny.steps * BEHIND[machine.dtype, False].supervised * full
    if (sft := recipe.sft) is not None:
        step = _training(work, sft.batch_size * example, sft.batch_size * lengths.answer, machine)
        found["sft"] = min(work.sft_steps * behind.supervised * step, sft.seconds or math.inf)
    if (rl := recipe.rl) is not None:
        answer = min(recipe.sampling.max_tokens, lengths.answer)
        answers = rl.prompts_per_step * rl.group_size
        step = _training(work, rl.prompts_per_step * lengths.prompt + answers * answer, answers * answer, machine)
        drawing = draws(work, machine, answers, answer, prompts=rl.prompts_per_step)
        updating = rl.inner_epochs * behind.update * step
        steps = min(rl.steps, (rl.seconds or math.inf) / (drawing + updating))
        found["rl rollouts"], found["rl updates"] = steps * drawing, steps * updating
    trained = (recipe.sft is not None) + (recipe.rl is not None)
    before, rambles = recipe.evaluates_untrained(), recipe.model.name is not None
    answered = trained * work.evaluated + work.inside + (before and not rambles) * work.untrained
    found["evaluations"] = draws(work, machine, answered, min(recipe.sampling.max_tokens, lengths.answer))
    if before and rambles:
        found["evaluations"] += draws(work, machine, work.untrained, recipe.sampling.max_tokens)
    return found


def _training(work: Work, tokens: float, targets: float, machine: Machine, *, whole: bool = False) -> float:
    """Seconds of the products of a pass with gradient, at the machine's rate; `whole` trains every weight."""
    passes = (6 if whole or work.lora is None else 4) + (2 if work.recomputes else 0)
    operations = passes * (tokens * work.shapes.body + targets * work.shapes.head)
    return operations / machine.products + TRAINING_LAYER * work.shapes.layers


def draws(work: Work, machine: Machine, answers: int, mean: float, prompts: int | None = None) -> float:
    """Seconds of drawing so many answers of a mean length, to as many prompts unless it is said how many."""
    if not answers:
        return 0.0
    behind = BEHIND[machine.dtype, work.lora is not None]
    chunks = math.ceil(answers / work.rows_at_once(machine))
    steps = chunks * min(work.recipe.sampling.max_tokens, max(math.ceil(mean), work.lengths.longest_answer))
    weights = work.shapes.body + work.shapes.head
    reading = behind.readings * weights * machine.dtype_bytes / machine.reading + DECODING_LAYER * work.shapes.layers
    products = behind.products * 2 * weights * answers * mean / machine.products
    read = (answers if prompts is None else prompts) * work.lengths.prompt
    return steps * reading + products + behind.supervised * 2 * read * work.shapes.body / machine.products
