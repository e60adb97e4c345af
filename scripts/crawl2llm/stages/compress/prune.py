"""Prune a model: weights that are small become zero, or whole heads, neurons and layers go; then it trains on, on the training text.

Writes `<model>/model/` (safetensors, config.json and tokenizer) and `<model>/losses.jsonl`. The held-out loss before and after the
training is in the manifest, in nats a token. Started by crawl2llm.training.launch; an interrupted run resumes from its newest
checkpoint in `<checkpoints>/<digest of settings and inputs>/`, as a fine-tuning does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from crawl2llm.chain import command_line
from crawl2llm.chain.fingerprint import code_hashes
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.manifest import Manifest, canonical_json, digest, pretty_json, write_atomically
from crawl2llm.stages.compress import calibration, masks, structured
from crawl2llm.stages.compress.retrain import WHERE, Run
from crawl2llm.stages.compress.settings import PruneSettings
from crawl2llm.training import checkpoint, metrics, mixture, model, program, quantized_weights
from crawl2llm.training.compressible_layers import linear_layers, weight_bytes
from crawl2llm.training.group import choose_device_alone
from crawl2llm.training.model_loading import context_of, load_tokenizer, model_folder, verify_weights
from crawl2llm.training.text_run import Windows, companion_files, train_with_rows
from crawl2llm.training.tuning import remove_checkpoints, train_and_measure

PRUNED = "pruned"  # in the folder of the checkpoints: the model before it is trained on
FACTS = "pruned.json"  # beside it: what was taken out
Facts = dict[str, Any]


def code_digest() -> str:
    """A digest of the code that prunes."""
    return digest(canonical_json(code_hashes("crawl2llm.stages.compress.prune")))


def read_facts(folder: Path) -> Facts | None:
    """What was taken out of the pruned model in `folder`; None without one, and of one by other code that was not yet trained on."""
    try:
        facts = dict(json.loads((folder / FACTS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    return facts if facts.get("code") == code_digest() or checkpoint.complete_checkpoints(folder) else None


def prune_model(tokens: list[Path], settings: PruneSettings, source: Path, folder: Path) -> Facts:
    """Prune the model in `source` into `folder`/pruned, unless it is there; what was taken out of it.

    tokens: manifests of tokenize.encode.
    """
    if (facts := read_facts(folder)) is None:
        torch.set_num_threads(settings.threads)
        loaded_model = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, local_files_only=True, trust_remote_code=False
        ).eval()
        dtype = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False).dtype
        config, tensors, taken_out = (
            remove_parts(loaded_model, tokens, settings, source)
            if settings.method == "structured"
            else zero_weights(loaded_model, settings)
        )
        kind = next((name for name, known in model.DTYPES.items() if known == dtype), "fp32")
        with checkpoint.detect_full_disk(folder):
            model.export(tensors, config, kind, companion_files(source), folder / PRUNED)
        facts = {**taken_out, "code": code_digest()}
        write_atomically(folder / FACTS, pretty_json(facts))
    return facts


def zero_weights(loaded_model: Any, settings: PruneSettings) -> tuple[Any, dict[str, torch.Tensor], Facts]:
    """(configuration, weights, facts) of a model whose linear layers, except the output layer, have zeros."""
    if mixture.mixture_of(loaded_model.config):
        raise command_line.InputError(
            f"{WHERE}.method is {settings.method!r}, and the model, of type {loaded_model.config.model_type!r}, is a mixture of "
            "experts, whose matrices are in no linear layer: most of its weights would stay as they are"
        )
    tensors = {name: value.detach() for name, value in loaded_model.named_parameters()}
    layers = [layer for layer in linear_layers(loaded_model.config) if not layer.output]
    zeros = total = 0
    for layer in layers:
        name = f"{layer.name}.weight"
        weight = tensors[name].T if layer.transposed else tensors[name]
        mask = masks.weight_mask(weight, layer.name, settings)
        tensors[name] = tensors[name] * (mask.T if layer.transposed else mask)
        zeros, total = zeros + int((~mask).sum()), total + mask.numel()
    facts = {"masked": [f"{layer.name}.weight" for layer in layers], "zeros": zeros, "prunable": total}
    return loaded_model.config, tensors, facts


def remove_parts(
    loaded_model: Any, tokens: list[Path], settings: PruneSettings, source: Path
) -> tuple[Any, dict[str, torch.Tensor], Facts]:
    """(configuration, weights, facts) of a model without its least important layers, heads and neurons."""
    structured.check_architecture(loaded_model.config)
    context, end = context_of(loaded_model.config), load_tokenizer(source).eos_token_id
    windows = Windows(tokens, settings.model_copy(update={"batch_tokens": context}), context, end, 1, WHERE)
    text = torch.from_numpy(
        calibration.first_windows(windows.stream, context, settings.calibration_tokens, settings.seed)
    )
    device = choose_device_alone(settings.device, 1, WHERE)
    scores = structured.measure_importance(loaded_model.to(device), text, settings.micro_batch)
    config, tensors, remaining = structured.cut_model(loaded_model.cpu(), scores, settings)
    return config, tensors, {"masked": [], "calibration_tokens": text.numel(), **remaining}


def wait_for_facts(folder: Path, seconds: float) -> Facts:
    """What process 0 has written, of another process; it ends by itself if process 0 fails. Raises InputError after so many seconds."""
    end = time.monotonic() + seconds
    while (facts := read_facts(folder)) is None:
        if time.monotonic() > end:
            raise command_line.InputError(
                f"the pruned model is not in {folder} after {seconds:.0f} s ({WHERE}.step_timeout)"
            )
        time.sleep(0.05)
    return facts


def body(args: argparse.Namespace, settings: PruneSettings, manifest: Manifest) -> list[Path]:
    """Prune, train on and write the results; returns the manifest's files on process 0 and nothing on the others."""
    signals = program.begin_training(settings.device)
    folder = command_line.checkpoint_folder(args)
    if os.environ["RANK"] != "0":
        if settings.retrain_tokens:
            facts = wait_for_facts(folder, settings.step_timeout)
            train_and_measure(Run(args, settings, folder, folder / PRUNED, facts["masked"]), None, signals)
        return []
    source = verify_weights(args.model)[1]
    if quantized_weights.is_quantized(source):
        raise command_line.InputError(f"{source} is quantized; {WHERE} takes a model whose weights are not")
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        facts = prune_model(args.tokens, settings, source, folder)
        if not settings.retrain_tokens:
            return write_results(args, settings, source, folder, facts, None, None, manifest)
        run = Run(args, settings, folder, folder / PRUNED, facts["masked"])
        tensors, made_on = train_with_rows(run, folder, signals)
        manifest.run |= made_on
        return write_results(args, settings, source, folder, facts, run, tensors, manifest)


def write_results(
    args: argparse.Namespace,
    settings: PruneSettings,
    source: Path,
    folder: Path,
    facts: Facts,
    run: Run | None,
    tensors: dict[str, torch.Tensor] | None,
    manifest: Manifest,
) -> list[Path]:
    """Write model/ and losses.jsonl, and fill the manifest's summary; the files to list. run: None if nothing was trained."""
    out = model_folder(args.manifest)
    out.mkdir(exist_ok=True)
    for name in (metrics.LOSSES, metrics.METRICS):
        (out / name).write_bytes((folder / name).read_bytes() if run else b"")
    with checkpoint.detect_full_disk(out):
        if run and tensors:
            files = model.export(tensors, run.engine.model.config, run.save_dtype, run.companions(), out / model.FOLDER)
        else:
            shutil.rmtree(out / model.FOLDER, ignore_errors=True)
            shutil.copytree(folder / PRUNED, out / model.FOLDER)
            files = sorted((out / model.FOLDER).iterdir())
    size, zeros = weight_bytes(out / model.FOLDER), zeros_in(out / model.FOLDER, facts["masked"])
    if facts["masked"] and zeros < facts["zeros"]:
        raise RuntimeError(f"{facts['zeros'] - zeros} weights that were zeroed are not zero after the training")
    losses = [row["loss"] for row in metrics.read(out / metrics.LOSSES) if "loss" in row]
    manifest.summary = {
        "method": settings.method,
        "parameters": model.count_parameters(
            AutoConfig.from_pretrained(out / model.FOLDER, local_files_only=True, trust_remote_code=False)
        ),
        "parameters_before": model.count_parameters(
            AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        ),
        "bytes": size,
        "bytes_before": weight_bytes(source),
        **{key: value for key, value in facts.items() if key not in ("masked", "code")},
        "steps": run.steps if run else 0,
        "tokens": run.steps * settings.batch_tokens if run else 0,
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "pruned_loss_before": run and round_of(run.before.get("heldout_loss")),
        "pruned_loss_after": run and round_of(run.after.get("heldout_loss")),
        "validation_tokens": run.heldout_tokens if run else 0,
        "skipped_steps": run.state.skipped if run else [],
        "notes": checkpoint_folders.code_change_notes(list(run.changed)) if run else [],
    }
    return [*files, out / metrics.LOSSES]


def round_of(loss: float | None) -> float | None:
    """A loss to six decimals."""
    return None if loss is None else round(loss, 6)


def zeros_in(folder: Path, names: list[str]) -> int:
    """How many weights of these parameters of a model's files are zero."""
    wanted, zeros = set(names), 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in wanted & set(tensors.keys()):
                zeros += int((tensors.get_tensor(name) == 0).sum())
    return zeros


def clear_checkpoints(args: argparse.Namespace) -> None:
    """Remove a finished run's checkpoints and the pruned model beside them."""
    folder = command_line.checkpoint_folder(args)
    remove_checkpoints(args)
    shutil.rmtree(folder / PRUNED, ignore_errors=True)
    (folder / FACTS).unlink(missing_ok=True)


main = program.TrainingProgram(WHERE, __doc__, PruneSettings, body, after=clear_checkpoints)


if __name__ == "__main__":
    raise SystemExit(main())
