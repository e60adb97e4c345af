"""Merge models: each weight is an average of those of models of one shape, or of the checkpoints of one training.

Writes `<model>/model/`: safetensors as the model of `from` has them, with its config.json and tokenizer. Tensors are read, merged and
written one after another, in the type that they have there. The same models give the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
from functools import partial
from pathlib import Path

import torch
from transformers import AutoConfig

from crawl2llm.chain.model_registry import MERGE_STEP
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.stages.compress import quantized_output
from crawl2llm.stages.compress.merged_files import ModelFiles, write_tensors
from crawl2llm.stages.compress.merging import checkpoint_weights, merge_tensors
from crawl2llm.stages.compress.settings import MergeSettings
from crawl2llm.training.architecture_match import rope_difference
from crawl2llm.training.compressible_layers import weight_bytes
from crawl2llm.training.export import export_checkpoint
from crawl2llm.training.init_checks import check_tokenizer
from crawl2llm.training.kept_checkpoints import kept_checkpoints, step_of_model
from crawl2llm.training.model_loading import model_folder, model_name, verify_weights

Part = tuple[str, float, ModelFiles]  # what a merged model is called, its weight, and its tensors


def model_parts(args: argparse.Namespace, settings: MergeSettings) -> tuple[list[Part], ModelFiles | None]:
    """(the models that are merged, in the order of their names; the one of `over`).

    Raises InputError for one of another shape or vocabulary than the first.
    """
    paths = [args.model, *args.others]
    files = [ModelFiles.read(verify_weights(path)[1]) for path in paths]
    for other in files[1:]:
        files[0].check_same_shape(other)
        check_tokenizer(files[0].folder / "tokenizer.json", other.folder / "tokenizer.json", f"{MERGE_STEP}.with")
    over = files.pop() if settings.over else None
    for other in files[1:]:
        check_same_positions(files[0].folder, other.folder)
    names = [model_name(path) for path in paths[: len(files)]]
    parts = list(zip(names, settings.weights or [1.0] * len(files), files, strict=True))
    # A sum depends on its order in the last digit; that of the arc has a beginning and an end.
    return (parts if settings.method == "slerp" else sorted(parts, key=lambda part: part[0])), over


def check_same_positions(first: Path, other: Path) -> None:
    """Raise InputError for models whose rotary positions turn otherwise, as after a longer context: their weights mean other things."""
    config = AutoConfig.from_pretrained(first, local_files_only=True, trust_remote_code=False)
    if difference := rope_difference(config, other):
        raise InputError(f"{other} turns positions otherwise than {first}, and cannot be merged with it: {difference}")


def checkpoint_parts(args: argparse.Namespace, settings: MergeSettings, trained: Manifest, scratch: Path) -> list[Part]:
    """The last checkpoints of a training, the oldest first, and the model that it ended with. They are exported into `scratch`, in fp32.

    Raises InputError if one is not there, and as `checkpoint_steps`.
    """
    steps, end = checkpoint_steps(trained, settings)
    files, progress = [], Progress(len(steps), "checkpoints")
    for saved in kept_checkpoints(trained, args.kept, steps, f"{MERGE_STEP}.every is {settings.every}"):
        export_checkpoint(saved.path, scratch / str(saved.step), "fp32")
        files.append(ModelFiles.read(scratch / str(saved.step)))
        progress.add()
    files.append(ModelFiles.read(verify_weights(args.model)[1]))
    weights = checkpoint_weights(settings.weighting, settings.last, settings.ema_decay)
    return list(zip((f"step {step}" for step in [*steps, end]), weights, files, strict=True))


def checkpoint_steps(trained: Manifest, settings: MergeSettings) -> tuple[list[int], int]:
    """(the steps of the checkpoints before a training's model, the step of that).

    Raises InputError if the training is too short for so many.
    """
    every, end = settings.every, step_of_model(trained)
    steps = list(range(every, end, every))[-(settings.last - 1) :]
    if len(steps) < settings.last - 1:
        raise InputError(
            f"{MERGE_STEP}.last is {settings.last} and every {every}: a training of {end:,} steps has {len(steps) + 1:,} such checkpoints, "
            "its last model among them"
        )
    return steps, end


def body(args: argparse.Namespace, settings: MergeSettings, manifest: Manifest) -> list[Path]:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed's import, by transformers, warns without it
    torch.set_num_threads(1)  # the last digits of a sum depend on their number
    trained, source = verify_weights(args.model)
    out, over = model_folder(args.manifest), None
    with scratch_folder(out / ".checkpoints") as scratch:
        if settings.method == "checkpoints":
            parts = checkpoint_parts(args, settings, trained, scratch)
        else:
            parts, over = model_parts(args, settings)
        text = ", ".join(f"{weight:.4g} × {name}" for name, weight, _ in parts)
        text += f" over {settings.over}" if settings.over else ""
        log.info("%s of %s", settings.method, text)
        paths = [path for path in map(trained.file, trained.files) if path.parent == source]
        write = partial(write_model, parts, over, settings, paths)
        files = quantized_output.write_folder(out / "model", source, write)
    manifest.summary = {
        "method": settings.method,
        "merged": text,
        "parameters": sum(torch.Size(shape).numel() for shape in ModelFiles.read(source).shapes.values()),
        "bytes": weight_bytes(out / "model"),
    }
    return files


def write_model(
    parts: list[Part], over: ModelFiles | None, settings: MergeSettings, paths: list[Path], folder: Path
) -> None:
    """Write the merged model into `folder`. paths: the files of the model of `from`, as its manifest lists them."""
    parent = ModelFiles.read(paths[0].parent)
    weights = [weight for _, weight, _ in parts]
    progress = Progress(len(parent.files), "tensors")

    def tensor_of(name: str) -> torch.Tensor:
        progress.add()
        stored = parent.tensor(name)
        if not stored.is_floating_point():
            return stored
        tensors = (files.tensor(name).float() for _, _, files in parts)
        base = over.tensor(name).float() if over else None
        return merge_tensors(tensors, weights, base, settings).to(stored.dtype)

    for path in paths:
        if path.suffix == ".safetensors":
            write_tensors(path, folder / path.name, tensor_of)
        else:
            shutil.copyfile(path, folder / path.name)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The folder of checkpoints, which are in no manifest."""
    parser.add_argument("--kept", type=Path, default=Path("checkpoints"), help="folder of all runs' checkpoints")


main = Program(MERGE_STEP, __doc__, MergeSettings, body, add_options)


if __name__ == "__main__":
    raise SystemExit(main())
