"""What a recipe's `scale` asks for: Ray, and on it workers for verdicts, for rollouts and for updates."""

from plumbline.engines.workers_models import open_learners, open_samplers
from plumbline.engines.workers_pool import cluster, workers
from plumbline.engines.workers_tasks import spread_verdicts

__all__ = ["cluster", "open_learners", "open_samplers", "spread_verdicts", "workers"]
