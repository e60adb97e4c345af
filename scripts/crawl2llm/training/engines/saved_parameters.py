"""The weights and the optimizer's state in a checkpoint of any engine, in their neutral form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from crawl2llm.training.engine import Saved
from crawl2llm.training.engines import deepspeed_files, torch_files

if TYPE_CHECKING:
    from crawl2llm.training.checkpoint import Checkpoint


def saved_parameters(checkpoint: Checkpoint, names: Iterable[str], folder: Path) -> Saved:
    """The neutral form of a checkpoint of any engine, one parameter at a time. A collective call, where processes have met.

    names: the parameters of the model, a tied one once. folder: a place for files on the way. Raises InputError if the checkpoint has
    others.
    """
    if checkpoint.engine == "deepspeed":
        return deepspeed_files.saved_parameters(checkpoint, names, folder)
    return torch_files.saved_parameters(checkpoint.path, names)
