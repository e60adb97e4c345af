"""Start a run from what another run left: the weights of a model, or a checkpoint with the optimizer's state.

From a model (a folder with config.json and *.safetensors, as `model/` of pretrain.train) training begins at step 1 with a fresh optimizer.
From a checkpoint (checkpoints/<run>/step-000100) it continues after that step, with this run's settings and data: an annealing, an
extension or another branch.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch.distributed as dist
from transformers import PreTrainedModel

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint, checkpoint_integrity, init_checks, model
from crawl2llm.training.architecture_match import check_config, rope_differs
from crawl2llm.training.checkpoint import Checkpoint
from crawl2llm.training.init_checks import KEY, check_tokenizer
from crawl2llm.training.initial import Weights
from crawl2llm.training.schedule import Plan
from crawl2llm.training.weight_files import Stored, names_in_files, shapes_in


def checkpoint_of(path: Path, steps: int) -> Checkpoint | None:
    """The checkpoint in this folder; None where it is a model's. Raises InputError for one that this run cannot continue from."""
    if not path.is_dir():
        raise InputError(f"{KEY} is {str(path)!r}: no folder of a model or of a checkpoint")
    if not (path / checkpoint.FACTS).exists():
        return None
    found = checkpoint.read(path)
    if found is None:
        raise InputError(f"{KEY} is {str(path)!r}: the checkpoint is not complete")
    init_checks.check_left(path, found.step, steps)
    return found


def begin(
    path: Path,
    made: PreTrainedModel,
    tokenizer: Path,
    plan: Plan,
    code: dict[str, str],
    values: Callable[[], Weights],
    chosen: Container[str] = (),
) -> tuple[Checkpoint | None, Callable[[], Weights]]:
    """The checkpoint at `path` from which a run continues, None for a model; the values to begin with. A collective call.

    made: the run's model, with or without values. tokenizer: this run's tokenizer.json. code: what the checkpoint passes for written by.
    values: those of a model without a start. chosen: as in `check_config`. Raises Told for what the run cannot start from.
    """
    found, wrong = None, ""
    try:
        found = checkpoint_of(path, plan.steps)
        if found is None:
            values = partial(weights, check_weights(made, path, tokenizer, chosen=chosen), values)
        else:
            check_model(made, path, tokenizer, chosen)
            if dist.get_rank() == 0 and (why := checkpoint_integrity.of(path)):
                raise InputError(f"{KEY} is {str(path)!r}: {why}; name another checkpoint")
    except InputError as error:  # it may be there on some nodes alone
        wrong = str(error)
    checkpoint.tell(wrong)
    if found and (why := checkpoint.first_altered_file(found)):
        raise checkpoint.Told(f"{KEY} is {str(path)!r}: {why}; name another checkpoint")
    if dist.get_rank() == 0:
        log.info("starting from %s%s", path, f", after step {found.step:,}" if found else "")
        if other := rope_differs(made.config, path / model.FOLDER if found else path):
            log.warning("positions are others than the weights were trained with: %s", other)
    if found:
        # The branch's own steps would begin elsewhere in the data, where its batches or its ramp are others.
        seen = found.ahead if found.seen is None else found.seen - plan.span(found.step + 1)[0]
        found = replace(
            found,
            ahead=seen,
            code=code,
            changed=(),
            skipped=(),
            rolled=(),
            lowest=None,
            stale=0,
            stopped=0,
            begun=found.step,
        )
    return found, values


def check_model(made: PreTrainedModel, path: Path, tokenizer: Path, chosen: Container[str] = ()) -> None:
    """Raise InputError where the checkpoint at `path` is one of another architecture or vocabulary. The others: as in `begin`."""
    there = path / model.FOLDER
    if there.is_dir():
        check_config(made.config, there, KEY, chosen)
        check_tokenizer(tokenizer, there / tokenizer.name, KEY)
    else:
        log.warning("%s was written by an earlier version: that it has this run's architecture cannot be checked", path)


def check_weights(
    made: PreTrainedModel, path: Path, tokenizer: Path, key: str = KEY, chosen: Container[str] = ()
) -> Stored:
    """Where each weight of a model in a folder is. made: the run's, with or without values. tokenizer: this run's tokenizer.json.
    key: of the config, which names the folder. chosen: as in `check_config`.

    Raises InputError where it is no model, or another one: other keys of config.json, tensors or vocabulary.
    """
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError(f"{key} is {str(path)!r}: a folder with neither *.safetensors nor {checkpoint.FACTS}")
    check_config(made.config, path, key, chosen)
    check_tokenizer(tokenizer, path / tokenizer.name, key)
    where = f"{key} is {str(path)!r}"
    file_of, shapes = dict[str, Path](), dict[str, tuple[int, ...]]()
    for file in files:
        there = shapes_in(file, where)
        file_of, shapes = file_of | dict.fromkeys(there, file), shapes | there
    parts, left = {}, shapes.keys() - ({"lm_head.weight"} if made.config.tie_word_embeddings else set())
    for name, _ in made.named_parameters():
        expected = names_in_files(made, name, shapes)
        if missing := expected.keys() - shapes.keys():
            raise InputError(f"{where}: the model there has no {min(missing)}")
        for part, shape in expected.items():
            if shapes[part] != shape:
                raise InputError(
                    f"{where}: {part} has the shape {shapes[part]} there, and {shape} under pretrain.train.model and the tokenizer's "
                    "vocabulary"
                )
        parts[name], left = tuple(expected), left - expected.keys()
    if left:
        raise InputError(f"{where}: the model here has no {min(left)}, which is in {file_of[min(left)].name}")
    return Stored(made, parts, file_of)


def weights(stored: Stored, values: Callable[[], Weights]) -> Weights:
    """The values of a fresh model, with those that are `stored` (see check_weights) in the place of its own. Memory: see Stored.value."""
    for name, value in values():
        yield name, stored.value(name) if name in stored.parts else value
