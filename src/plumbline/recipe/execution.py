"""How a run is executed: when it is evaluated, where it is written, and what beside this process
works for it."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from plumbline.config.section import PositiveInt, Section

ENGINES = {"vllm": "plumbline.engines.vllm:open_engine"}
"""What opens each engine: called with the recipe, the policy, its model directory and the run,
gives an `Engine`."""
WORKERS = "plumbline.engines.workers"
"""Where what `scale` asks for is opened: `open_workers`, `spread_verdicts`, `Samplers`,
`open_learners`."""


class EvaluationSection(Section):
    """When and on what the model is evaluated."""

    every: int = Field(default=20, ge=0)
    """RL steps between evaluations inside training; 0 evaluates at the ends only."""
    split: str = "val"
    """The split that is used inside training."""
    limit: PositiveInt | None = 64
    """Examples of the split that are used inside training, of each task."""
    final: list[str] = Field(default=["val", "test"])
    """The splits that are used at the ends."""
    final_limit: PositiveInt | None = None
    """Examples of each of these splits that a run uses, of each task; None uses all."""
    steps: PositiveInt | None = None
    """Denoising steps of evaluations; None takes `sampling.steps`."""
    untrained: bool | PositiveInt = True
    """Before SFT and GRPO as well; a number: so many examples of each split, greedily alone; false:
    not at all."""
    further: bool = True
    """At the ends, also the splits that a task has beside train, val and test (such as
    held-out-pages)."""
    sampled: bool = True
    """Beside greedy answers, one answer each drawn as in training."""
    margin: float = Field(default=0.02, gt=0, lt=1)
    """A difference of rewards that does not matter: a verdict of "did not change" says that there
    is none larger."""
    replays: int = Field(default=0, ge=0, le=4)
    """Episodes of the last stage (greedy, last final split) that are replayed as pictures in the
    report: failed ones, and of several a right one."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.replays and not self.final:
            raise ValueError(
                "replays are of the last split of final, which is empty; name one, or set replays "
                "to 0"
            )
        return self


class RunSection(Section):
    """Where the run is written, and how often."""

    folder: str = "runs"
    """Where runs are written; each has a folder with its name."""
    trackers: list[Literal["trackio", "wandb", "tensorboard"]] = Field(default=[])
    """Trackers that get the metrics as well, such as [wandb]."""
    project: str = "plumbline"
    """The project's name in the trackers."""
    checkpoint_every: PositiveInt = 20
    """Steps from one checkpoint to the next."""
    keep_checkpoints: PositiveInt = 2
    """Checkpoints that are kept, the newest ones."""
    preflight: bool = True
    """Refuse to begin where `plumbline check RECIPE` finds something fatal that takes seconds to
    see."""


class EngineSection(Section):
    """An engine that draws rollouts in place of this process, and is handed the weights."""

    name: Literal["vllm"]
    """Which engine."""
    address: str | None = None
    """Of a server that runs already, such as http://127.0.0.1:8000; without one the run starts and
    stops its own."""
    python: str | None = None
    """The interpreter that the server is started with, where the engine is installed in an
    environment of its own."""
    arguments: list[str] = Field(default=[])
    """Further ones of the server's command."""
    publish: Literal["auto", "lora", "full", "transfer"] = "auto"
    """How weights are handed over: as an adapter's file, as all weights in a file, or by the
    engine's own transfer. auto: lora where adapters are trained on a GPU, else full."""
    timeout: float = Field(default=600, gt=0)
    """Seconds without any answer after which the server counts as hung."""

    @field_validator("arguments")
    @classmethod
    def _stays_on_this_machine(cls, arguments: list[str]) -> list[str]:
        ours = {"--host", "--port", "--api-key", "--uds"}
        if taken := [one for one in arguments if one.partition("=")[0].replace("_", "-") in ours]:
            raise ValueError(
                f"{taken[0]} is the run's: its server listens on a socket that this user alone may "
                "open"
            )
        return arguments

    @field_validator("address")
    @classmethod
    def _holds_no_password(cls, address: str | None) -> str | None:
        if address is not None and "@" in address:
            raise ValueError(
                "it holds a user or a password, which would stand in every record of the run"
            )
        return address


class ScaleSection(Section):
    """How many workers a run has beside its own process, as Ray actors; with 0 and 1 of all there
    is no Ray."""

    address: str | None = None
    """Of a Ray cluster; without one, that of RAY_ADDRESS, else a local one is started for the
    run."""
    verdicts: int = Field(default=0, ge=0)
    """Actors that judge answers (browsers, databases); 0 judges in this process."""
    samplers: int = Field(default=0, ge=0)
    """Actors that draw, each with a replica of the model; 0 draws in this process."""
    learners: PositiveInt = 1
    """Processes that share the micro-batches of an update, this one included."""
    timeout: float = Field(default=600, gt=0)
    """Seconds after which a worker counts as hung that has not given a verdict, a chunk of answers
    or its micro-batches."""

    @field_validator("address")
    @classmethod
    def _of_the_cluster_itself(cls, address: str | None) -> str | None:
        if (address or "").startswith("ray://"):
            raise ValueError(
                f"{address} is an address of Ray's client, from which no run can be spread: give "
                "HOST:PORT on a "
                "machine of the cluster, or send the run there (plumbline submit)"
            )
        return address

    @property
    def needs_ray(self) -> bool:
        """Whether any of it needs Ray."""
        return self.verdicts > 0 or self.samplers > 0 or self.learners > 1
