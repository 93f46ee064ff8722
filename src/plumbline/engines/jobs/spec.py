"""What a job is, in one frozen value: everything that a back end is told, and nothing that is secret."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

BackEnd = Literal["ray", "process", "anyscale"]
BACK_ENDS: tuple[BackEnd, ...] = ("ray", "process", "anyscale")
ENTRY = "plumbline.engines.jobs.entry"
"""What a job runs: `python -m` this, with the arguments of `JobSpec.arguments`."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "127.0.0.2"})  # noqa: S104 - it is compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """What only Anyscale asks for."""

    image: str | None = None
    """Of a registry; without one the Containerfile beside the job's YAML is built."""
    compute: str | None = None
    """The name of a compute configuration; without one Anyscale's own default."""
    timeout: int | None = None
    """Seconds after which the job is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job, as it is recorded and sent; secrets are in it by name only."""

    id: str
    name: str
    """Of the recipe."""
    on: BackEnd
    recipe: str
    """A path below `working_dir`, or the name of a bundled recipe."""
    out: str
    """The run's folder: an absolute path, or an address."""
    overrides: tuple[str, ...] = ()
    resume: bool = False
    trust_code: bool = False
    """Whether the job imports what the recipe names; what was typed is in `overrides`, and typed again."""
    working_dir: str = ""
    """Absolute; what is sent of it is decided by `package.py`."""
    excludes: tuple[str, ...] = ()
    """Further patterns of what is not sent, as in a .gitignore file."""
    needs: tuple[str, ...] = ()
    """Paths that the job reads and its recipe does not name."""
    there: tuple[str, ...] = ()
    """Beginnings of paths that the cluster has, and this machine need not have."""
    address: str | None = None
    """Of a Ray cluster; None starts one on this machine for the job."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that anybody may see: Ray and Anyscale show them."""
    secrets: tuple[str, ...] = ()
    """Names of variables that the job must find in its environment."""
    requirements: str | None = None
    """A file of pinned packages that the cluster installs for the job."""
    cpus: float | None = None
    gpus: float | None = None
    """Reserved for the job's own process."""
    workers: int = 0
    """That the recipe's `scale` asks for beside that process, with a processor each."""
    cloud: Cloud = field(default_factory=Cloud)

    @property
    def here(self) -> bool:
        """Whether the job runs on this machine, and so sees its files."""
        if self.on == "process":
            return True
        return self.on == "ray" and (self.address in {None, "auto"} or urlsplit(str(self.address)).hostname in LOOPBACK)

    @property
    def own_head(self) -> bool:
        """Whether a Ray cluster of one machine is started for the job, and stopped after it."""
        return self.on == "ray" and self.address is None

    def arguments(self) -> list[str]:
        """Of `python -m plumbline.engines.jobs.entry`."""
        needed = [word for name in self.secrets for word in ("--secret", name)]
        run = ["run", self.recipe, "--out", self.out, *(word for one in self.overrides for word in ("--set", one))]
        return ["--job", self.id, *needed, "--", *run, *["--resume"] * self.resume, *["--trust-code"] * self.trust_code]

    def command(self) -> list[str]:
        """What the back end starts; on this machine by the interpreter of this process."""
        return [sys.executable if self.here else "python", "-m", ENTRY, *self.arguments()]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "JobSpec":
        """The inverse of `plain`."""
        made: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**{**made, "cloud": Cloud(**values["cloud"])})
