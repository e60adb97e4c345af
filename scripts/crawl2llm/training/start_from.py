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
from crawl2llm.training import checkpoint, checkpoint_integrity, init_checks, model, routers
from crawl2llm.training.architecture_match import check_config, rope_difference
from crawl2llm.training.checkpoint import Checkpoint
from crawl2llm.training.init_checks import KEY, check_tokenizer
from crawl2llm.training.initial import Weights
from crawl2llm.training.schedule import Plan
from crawl2llm.training.weight_files import StoredWeights, names_in_files, shapes_in


def checkpoint_of(path: Path, steps: int) -> Checkpoint | None:
    """The checkpoint in this folder; None if it is a model's. Raises InputError for one that this run cannot continue from."""
    if not path.is_dir():
        raise InputError(f"{KEY} is {str(path)!r}: no folder of a model or of a checkpoint")
    if not (path / checkpoint.FACTS).exists():
        return None
    resume_point = checkpoint.read(path)
    if resume_point is None:
        raise InputError(f"{KEY} is {str(path)!r}: the checkpoint is not complete")
    init_checks.check_steps_left(path, resume_point.step, steps)
    return resume_point


def starting_point(
    path: Path,
    run_model: PreTrainedModel,
    tokenizer: Path,
    plan: Plan,
    code: dict[str, str],
    values: Callable[[], Weights],
    chosen: Container[str] = (),
) -> tuple[Checkpoint | None, Callable[[], Weights]]:
    """The checkpoint at `path` from which a run continues, None for a model; the values to begin with. A collective call.

    run_model: the run's model, with or without values. tokenizer: this run's tokenizer.json. code: what the checkpoint passes for written
    by. values: those of a model without a start. chosen: the keys that pretrain.train.model.overrides has. Raises CollectiveError for what
    the run cannot start from.
    """
    resume_point, wrong = None, ""
    try:
        resume_point = checkpoint_of(path, plan.steps)
        if resume_point is None:
            values = partial(
                with_stored_weights, find_stored_weights(run_model, path, tokenizer, chosen=chosen), values
            )
        else:
            check_model(run_model, path, tokenizer, chosen)
            if dist.get_rank() == 0 and (why := checkpoint_integrity.damage_text(path)):
                raise InputError(f"{KEY} is {str(path)!r}: {why}; name another checkpoint")
    except InputError as error:  # it may be there on some nodes alone
        wrong = str(error)
    checkpoint.raise_on_every_process(wrong)
    if resume_point and (why := checkpoint.first_altered_file(resume_point)):
        raise checkpoint.CollectiveError(f"{KEY} is {str(path)!r}: {why}; name another checkpoint")
    if dist.get_rank() == 0:
        log.info("starting from %s%s", path, f", after step {resume_point.step:,}" if resume_point else "")
        if difference := rope_difference(run_model.config, path / model.FOLDER if resume_point else path):
            log.warning("positions are others than the weights were trained with: %s", difference)
    if resume_point:
        # The branch's own steps would begin elsewhere in the data, where its batches or its ramp are others.
        seen = (
            resume_point.ahead
            if resume_point.seen is None
            else resume_point.seen - plan.window_span(resume_point.step + 1)[0]
        )
        resume_point = replace(
            resume_point,
            ahead=seen,
            code=code,
            changed=(),
            skipped=(),
            rolled=(),
            lowest=None,
            stale=0,
            stopped=0,
            begun=resume_point.step,
        )
    return resume_point, values


def check_model(run_model: PreTrainedModel, path: Path, tokenizer: Path, chosen: Container[str] = ()) -> None:
    """Raise InputError if the checkpoint at `path` is one of another architecture or vocabulary. The others: as in `starting_point`."""
    model_folder = path / model.FOLDER
    if model_folder.is_dir():
        check_config(run_model.config, model_folder, KEY, chosen)
        check_tokenizer(tokenizer, model_folder / tokenizer.name, KEY)
    else:
        log.warning("%s was written by an earlier version: that it has this run's architecture cannot be checked", path)


def find_stored_weights(
    run_model: PreTrainedModel, path: Path, tokenizer: Path, key: str = KEY, chosen: Container[str] = ()
) -> StoredWeights:
    """Where each weight of a model in a folder is. run_model: the run's, with or without values. tokenizer: this run's tokenizer.json.
    key: of the config, which names the folder. chosen: the keys that pretrain.train.model.overrides has.

    Raises InputError if it is no model, or another one: other keys of config.json, tensors or vocabulary.
    """
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError(f"{key} is {str(path)!r}: a folder with neither *.safetensors nor {checkpoint.FACTS}")
    check_config(run_model.config, path, key, chosen)
    check_tokenizer(tokenizer, path / tokenizer.name, key)
    where = f"{key} is {str(path)!r}"
    file_of, shapes = dict[str, Path](), dict[str, tuple[int, ...]]()
    for file in files:
        file_shapes = shapes_in(file, where)
        file_of, shapes = file_of | dict.fromkeys(file_shapes, file), shapes | file_shapes
    parts, left = {}, shapes.keys() - ({"lm_head.weight"} if run_model.config.tie_word_embeddings else set())
    for name in routers.trained_values(run_model):
        expected = names_in_files(run_model, name, shapes)
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
    return StoredWeights(run_model, parts, file_of)


def with_stored_weights(stored: StoredWeights, values: Callable[[], Weights]) -> Weights:
    """The values of a fresh model, with those that are `stored` (see find_stored_weights) in the place of its own.

    Memory: see StoredWeights.value.
    """
    for name, value in values():
        yield name, stored.value(name) if name in stored.parts else value
