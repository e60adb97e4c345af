"""The learning curve of `base`: the tasks from held-out text, asked of its checkpoints and of its model.

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
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, json_lines, pretty_json, write_atomically
from crawl2llm.stages.evaluate import harness, multiple_choice
from crawl2llm.stages.evaluate.settings import CurveSettings
from crawl2llm.training import quantized_weights
from crawl2llm.training.checkpoint import Checkpoint
from crawl2llm.training.export import export_checkpoint
from crawl2llm.training.kept_checkpoints import kept_checkpoints, step_of_model
from crawl2llm.training.model_loading import context_of, load_model, verify_weights

Row = dict[str, Any]


def tokens_at_step(trained: Manifest, step: int, seen: int | None) -> int:
    """Training tokens up to a step. seen: its sequences, where the checkpoint says so; else as many at every step."""
    if seen is not None:
        return seen * int(trained.summary["shape"]["context"])
    return int(step * trained.summary["tokens"] / trained.summary["steps"])


def visit_checkpoints(
    model: Path, checkpoints_folder: Path, step_interval: int, measure: Callable[[int, int, Path], None]
) -> None:
    """Give `measure` the step, the training tokens and the folder of each checkpoint of the curve and of the training's model, by steps.

    model: manifest of pretrain.train. checkpoints_folder: folder of all runs' checkpoints. Raises InputError if a checkpoint is not
    there.
    """
    trained, folder = verify_weights(model)
    model_step = step_of_model(trained)
    steps = [step for step in range(step_interval, int(trained.summary["steps"]), step_interval) if step != model_step]
    checkpoints = kept_checkpoints(trained, checkpoints_folder, steps, f"evaluate.curve.every is {step_interval}")
    progress = Progress(len(checkpoints) + 1, "models")

    def measure_checkpoint(saved_checkpoint: Checkpoint) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch) / "model"
            export_checkpoint(saved_checkpoint.path, target, "fp32")
            for path in folder.iterdir():  # the tokenizer, as the training's model has it
                if (
                    not (target / path.name).exists()
                    and path.suffix in (".json", ".jinja")
                    and "index" not in path.name
                ):
                    (target / path.name).write_bytes(path.read_bytes())
            measure(
                saved_checkpoint.step, tokens_at_step(trained, saved_checkpoint.step, saved_checkpoint.seen), target
            )

    by_step = {saved_checkpoint.step: saved_checkpoint for saved_checkpoint in checkpoints}
    for step in sorted([*by_step, model_step]):
        if step == model_step:
            measure(step, tokens_at_step(trained, step, None), folder)
        else:
            measure_checkpoint(by_step[step])
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
