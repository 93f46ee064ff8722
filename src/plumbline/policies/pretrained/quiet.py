"""transformers' own voice, turned down: its progress bars and advice would cut through the run's own view."""

import os
import warnings


def quieten() -> None:
    """Keep transformers' progress bars and advice off the terminal; errors still come through."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # peft asks transformers by a name that is being retired: nothing that a user of either could fix.
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)
    # Nor this one: peft looks for the base's config.json to see a changed vocabulary, and a GGUF file has none.
    warnings.filterwarnings("ignore", message=r"Could not find a config file in .*\.gguf", category=UserWarning)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
