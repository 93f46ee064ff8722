"""Models that sample trajectories and score them by one law. `open_policy` opens one by its family's name."""

from typing import TYPE_CHECKING

from plumbline.errors import ModelError
from plumbline.recipe import ModelSection

if TYPE_CHECKING:
    from plumbline.policies.policy import Policy


def open_policy(section: ModelSection, source: str, seed: int = 0) -> "Policy":
    """Load the model at `source` (a directory or hub name) as a policy of the section's family.

    Raises:
        ModelError: torch is not installed, or the model cannot be loaded.
    """
    try:
        import torch  # noqa: F401 - asked first, because the families import it at the top
    except ImportError as error:
        raise ModelError("a model needs torch, which is not installed", "pip install 'plumbline[train]'") from error
    from plumbline.policies.autoregressive.policy import AutoregressivePolicy

    families = {"autoregressive": AutoregressivePolicy}
    return families[section.family].open(section, source, seed)
