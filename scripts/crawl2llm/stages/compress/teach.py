"""Write what a teacher says of the training text, once for all of its students: the likeliest next tokens at each position.

Writes `<teacher>/<part>.ids.npy`, uint16 or uint32 [windows, context, k], the likeliest first, and `<part>.logprobs.npy`, fp16
[windows, context, k + 1], the last for all other tokens together. Windows are in the order of a training. An interrupted task goes on
after the last part that it wrote, if nothing has changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import TEACH_STEP
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json, digest, sync_to_disk, write_atomically
from crawl2llm.stages.compress.divergence import likeliest
from crawl2llm.stages.compress.settings import TeachSettings
from crawl2llm.stages.compress.teacher_output import IDS, LOGPROBS, headless, hidden_states, rows_at_once
from crawl2llm.training import checkpoint, data
from crawl2llm.training.group import choose_device_alone
from crawl2llm.training.model_loading import context_of, load_model, model_folder, verify_weights

MARK = "unfinished"  # beside the parts of a task that goes on: a digest of what decides them
PART_BYTES = 1 << 27  # of a part's two files, about: what an interruption may cost


def written_windows(tokens: int, context: int, have: int) -> int:
    """How many windows are written, of the `have` that the training text holds."""
    return min(have, -(-tokens // context)) if tokens else have


def body(args: argparse.Namespace, settings: TeachSettings, manifest: Manifest) -> list[Path]:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed's import, by transformers, warns without it
    os.environ.setdefault("LOCAL_RANK", "0")
    torch.set_num_threads(settings.threads)
    source = verify_weights(args.model)[1]
    model, _ = load_model(source, settings.precision)
    vocabulary, context = model.config.vocab_size, context_of(model.config)
    if settings.top_k >= vocabulary:
        raise InputError(f"{TEACH_STEP}.top_k is {settings.top_k}; the vocabulary has {vocabulary} tokens: name fewer")
    model = model.to(choose_device_alone(settings.device, 1, TEACH_STEP)).eval()
    stream = data.open_split(args.tokens, "train")
    have = data.count_windows(stream, context)
    number = written_windows(settings.tokens, context, have)
    order = data.windows_from(0, number, have, settings.seed)
    part_windows = max(1, PART_BYTES // (context * (settings.top_k + 1) * 6))
    out = model_folder(args.manifest)
    prepare_folder(out, digest(canonical_json([manifest.fingerprint, files_read(args)])))
    logits, names = headless(model), []
    with checkpoint.detect_full_disk(out):
        for start in range(0, number, part_windows):
            part = f"{start // part_windows:05d}"
            names += [f"{part}.{end}" for end in (IDS, LOGPROBS)]
            if all((out / name).is_file() for name in names[-2:]):
                continue
            windows = order[start : start + part_windows]
            write_part(out, names[-2:], likeliest_of(model, logits, stream, windows, context, settings))
            log.info("%s of %s windows of %s tokens", f"{start + len(windows):,}", f"{number:,}", f"{context:,}")
    (out / MARK).unlink()
    manifest.summary = {
        "top_k": settings.top_k,
        "temperature": settings.temperature,
        "tokens": number * context,
        "windows": number,
        "stream_windows": have,
        "part_windows": part_windows,
        "seed": settings.seed,
        "bytes": sum((out / name).stat().st_size for name in names),
    }
    return [out / name for name in names]


@torch.no_grad()
def likeliest_of(
    model: Any, logits: Any, stream: data.Stream, windows: data.Tokens, context: int, settings: TeachSettings
) -> tuple[np.ndarray, np.ndarray]:
    """(ids, log-probabilities) of windows, as they are stored. logits: what makes logits of the model's hidden states."""
    vocabulary, device = model.config.vocab_size, next(model.parameters()).device
    ids = np.empty((len(windows), context, settings.top_k), np.uint16 if vocabulary <= 1 << 16 else np.uint32)
    logprobs = np.empty((len(windows), context, settings.top_k + 1), np.float16)
    for first in range(0, len(windows), settings.batch_size):
        rows = slice(first, first + settings.batch_size)
        tokens = data.read_windows(stream, windows[None, rows], context)[0][:, :-1].astype(np.int64)
        hidden = hidden_states(model, torch.from_numpy(tokens).to(device), TEACH_STEP).flatten(0, 1)
        pieces = [
            likeliest(logits(piece).float(), settings.temperature, settings.top_k)
            for piece in hidden.split(rows_at_once(hidden, vocabulary))
        ]
        for array, parts in zip((ids, logprobs), zip(*pieces, strict=True), strict=True):
            array[rows] = torch.cat(parts).cpu().numpy().reshape(array[rows].shape)
    return ids, logprobs


def write_part(folder: Path, names: list[str], arrays: tuple[np.ndarray, np.ndarray]) -> None:
    """Write files that are whole or not there."""
    for name, array in zip(names, arrays, strict=True):
        partial = folder / f".{name}.partial"
        with partial.open("wb") as handle:
            np.save(handle, array)
        sync_to_disk(partial)
        partial.replace(folder / name)


def files_read(args: argparse.Namespace) -> dict[str, Any]:
    """The files of the manifests that the task reads, with their checksums."""
    return {key: read.files for key, read in command_line.input_manifests(args).items()}


def prepare_folder(folder: Path, mark: str) -> None:
    """Leave in the folder what an interrupted task of the same mark wrote there, and nothing else."""
    if not (folder / MARK).is_file() or (folder / MARK).read_text(encoding="utf-8") != mark:
        shutil.rmtree(folder, ignore_errors=True)
        write_atomically(folder / MARK, mark)


main = Program(TEACH_STEP, __doc__, TeachSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
