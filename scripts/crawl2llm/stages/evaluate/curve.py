"""The learning curve of `base`: the tasks from held-out text, asked of its checkpoints and of the model that it ended with.

Writes curve.json, a point for every `every`-th step, and `curve.items.jsonl`, the result of each item at each of them. Checkpoints are
exported one by one into a scratch folder, as `crawl2llm export` does. They are in no manifest: a run that has removed one that is needed
cannot draw its curve, and says so.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, json_lines, pretty_json, write_atomically
from crawl2llm.stages.evaluate import harness, multiple_choice
from crawl2llm.stages.evaluate.settings import CurveSettings
from crawl2llm.training import checkpoint, quantized_weights
from crawl2llm.training.export import export_checkpoint
from crawl2llm.training.metrics import LOSSES
from crawl2llm.training.model_loading import context_of, load_model, verify_weights

Row = dict[str, Any]


def checkpoint_folder(trained: Manifest, below: Path) -> Path:
    """The folder of a training's checkpoints. Raises InputError if it is not there.

    Trainings on other files of the same sources have the same fingerprint: the losses of every step tell them apart.
    """
    losses = trained.file(LOSSES).read_bytes()
    for place, _, mark in checkpoint_folders.trainings_below(below):
        rows = place / LOSSES
        if mark == trained.fingerprint and rows.is_file() and rows.read_bytes() == losses:
            return place
    raise InputError(
        f"no checkpoints of this training are in {below}/: they were removed, or were written under earlier code or settings; remove the "
        f"training's manifest ({trained.path}) to train again, or set evaluate.curve.every to 0"
    )


def curve_checkpoints(
    checkpoints: list[checkpoint.Checkpoint], step_interval: int, steps: int, folder: Path
) -> list[checkpoint.Checkpoint]:
    """The checkpoints of every n-th step before the last. Raises InputError if one is not there."""
    by_step = {saved_checkpoint.step: saved_checkpoint for saved_checkpoint in checkpoints}
    needed = range(step_interval, steps, step_interval)
    if absent := [step for step in needed if step not in by_step]:
        saved_steps = ", ".join(f"{step:,}" for step in sorted(by_step)) or "none"
        raise InputError(
            f"evaluate.curve.every is {step_interval}, and {folder} has no checkpoint of step "
            f"{', '.join(f'{step:,}' for step in absent[:5])} (it has those of: {saved_steps}). A training keeps them with "
            f"pretrain.train.keep_every: {step_interval}, which reruns nothing; one that is finished has to train again: remove its "
            "manifest"
        )
    return [by_step[step] for step in needed]


def tokens_at_step(trained: Manifest, step: int, seen: int | None) -> int:
    """Training tokens up to a step. seen: its sequences, where the checkpoint says so; else as many at every step."""
    if seen is not None:
        return seen * int(trained.summary["shape"]["context"])
    return int(step * trained.summary["tokens"] / trained.summary["steps"])


def visit_checkpoints(
    model: Path, checkpoints_folder: Path, step_interval: int, measure: Callable[[int, int, Path], None]
) -> None:
    """Give `measure` the step, the training tokens and the folder of each checkpoint of the curve, then of the model that it ended with.

    model: manifest of pretrain.train. checkpoints_folder: folder of all runs' checkpoints. Raises InputError if a checkpoint is not
    there.
    """
    trained, last = verify_weights(model)
    place, steps = checkpoint_folder(trained, checkpoints_folder), int(trained.summary["steps"])
    checkpoints = curve_checkpoints(checkpoint.complete_checkpoints(place), step_interval, steps, place)
    progress = Progress(len(checkpoints) + 1, "models")
    for saved_checkpoint in checkpoints:
        with tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch) / "model"
            export_checkpoint(saved_checkpoint.path, target, "fp32")
            for path in last.iterdir():  # the tokenizer, as the last model has it
                if (
                    not (target / path.name).exists()
                    and path.suffix in (".json", ".jinja")
                    and "index" not in path.name
                ):
                    (target / path.name).write_bytes(path.read_bytes())
            measure(
                saved_checkpoint.step, tokens_at_step(trained, saved_checkpoint.step, saved_checkpoint.seen), target
            )
        progress.add()
    measure(steps, int(trained.summary["tokens"]), last)
    progress.add()


def body(args: argparse.Namespace, settings: CurveSettings, manifest: Manifest) -> list[Path]:
    harness.go_offline()
    import torch

    torch.set_num_threads(settings.threads)
    rows = multiple_choice.read_items(args.tasks)
    points: list[Row] = []
    lines: list[Row] = []

    def measure_model(step: int, tokens: int, folder: Path) -> None:
        model, tokenizer = load_model(folder, settings.precision)
        quantized_weights.place_model(model)
        context = context_of(model.config)
        tasks = multiple_choice.item_tasks(rows, tokenizer, context)
        answers, _ = harness.run_tasks(model, tokenizer, tasks, [], context, settings.seed)
        numbers, item_rows = multiple_choice.task_results(tasks, answers.get("samples", {}), settings.seed)
        points.append({"step": step, "tokens": tokens, "tasks": numbers})
        lines.extend(
            {"step": step, **{key: row[key] for key in ("task", "id", "document", "right")}} for row in item_rows
        )
        accuracies = ", ".join(f"{task} {task_numbers['accuracy']:.3f}" for task, task_numbers in numbers.items())
        log.info("step %s: %s", f"{step:,}", accuracies)

    visit_checkpoints(args.model, args.kept, settings.every, measure_model)
    files = [args.manifest.with_name("curve.json"), args.manifest.with_name("curve.items.jsonl")]
    write_atomically(files[0], pretty_json({"points": points}))
    write_atomically(files[1], json_lines(lines))
    manifest.count_all_kept(len(rows))
    manifest.summary = {"points": points}
    return files


def add_options(parser: argparse.ArgumentParser) -> None:
    """The folder of checkpoints, which are in no manifest."""
    parser.add_argument("--kept", type=Path, default=Path("checkpoints"), help="folder of all runs' checkpoints")


main = Program("evaluate.curve", __doc__, CurveSettings, body, add_options)


if __name__ == "__main__":
    raise SystemExit(main())
