"""Fine-tune the pretrained model on the question and answer pairs, with TRL's SFTTrainer and a loss on answers alone.

Writes `model/` (safetensors and tokenizer) and `losses.jsonl` (one line an optimizer step). The held-out loss before
and after, in nats an answer token, is in the manifest. An interrupted run resumes from its newest complete checkpoint in
`<checkpoints>/<digest of the fingerprint>/`; these are removed in the end. SIGTERM, SIGINT and SIGUSR1 make it finish
its step, save a checkpoint and end with status 85 (RESUBMIT): start it again to resume.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.common import cli
from scripts.common.console import log
from scripts.common.manifest import Manifest, canonical, digest, write_atomically
from scripts.common.processes import RESUBMIT, environments, free_port, listen_no_more, supervise
from scripts.finetune.loss import completion_loss
from scripts.finetune.sft import INPUTS, Job, clear, fine_tune, load, quiet
from scripts.finetune.template import enough, read_pairs

OPTIONS = (  # keys marked `placement` in the schema
    "processes",
    "activation_checkpointing",
    "checkpoint_every",
    "max_skipped_steps",
    "tensorboard",
    "wandb",
    "wandb_project",
)


def check(settings: dict[str, Any], processes: int, model: Any) -> int:
    """The micro-batch to use: the largest up to `micro_batch_size` that fits. InputError for what cannot fit."""
    batch, length = settings["batch_size"], settings["max_length"]
    if batch % processes:
        raise cli.InputError(
            f"finetune.train.batch_size {batch} is not a multiple of finetune.train.processes {processes}"
        )
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit and length > limit:
        raise cli.InputError(f"finetune.train.max_length is {length}; the model's context is {limit} tokens")
    share = batch // processes
    return next(size for size in range(min(settings["micro_batch_size"], share), 0, -1) if share % size == 0)


def launch(job: Job) -> None:
    """Run the job here, or in a group of processes where it asks for more than one.

    Ends this program with status RESUBMIT where a signal stopped the job after a checkpoint.
    """
    if job.processes == 1:
        if not fine_tune(job):
            raise SystemExit(RESUBMIT)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        job.write(path)
        command = [sys.executable, "-m", "scripts.finetune.sft", str(path)]
        places = environments(0, 1, job.processes, "127.0.0.1", free_port())
        said: list[str] = []  # of the process that failed first; its traceback is on stderr
        status = supervise(
            [(command, {**os.environ, **place}) for place in places],
            step="finetune.train",
            say=lambda message, _: said.append(message),
        )
    if status == RESUBMIT:
        raise SystemExit(RESUBMIT)
    if status:
        raise cli.InputError("".join(said) or f"fine-tuning on {job.processes} processes ended with status {status}")


def heldout_loss(folder: Path, pairs: Path, settings: dict[str, Any]) -> tuple[float, int, int]:
    """(held-out loss in nats a token, answer tokens, the model's parameters) of the model in `folder`.

    Without held-out pairs the loss is 0 over 0 tokens.
    """
    import torch

    rows, template = read_pairs(pairs, "heldout")
    model, tokenizer = load(folder)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    loss, number = completion_loss(model, tokenizer, rows, template, settings["max_length"])
    return loss, number, sum(p.numel() for p in model.parameters())


def same_inputs(checkpoints: Path, mark: str) -> None:
    """Remove checkpoints that were trained from another model or on other pairs: a source file was replaced since."""
    path = checkpoints / INPUTS
    if path.exists() and path.read_text(encoding="utf-8") != mark:
        log.warning("the checkpoints in %s are of another model or of other pairs: training starts anew", checkpoints)
        clear(checkpoints)
    write_atomically(path, mark)


def passed_on(source: Path, out: Path, pairs: Manifest, manifest: Manifest) -> list[Path]:
    """Without enough pairs: the pretrained model as it is, and a summary that says so; returns the files."""
    shutil.rmtree(out / "model", ignore_errors=True)
    shutil.copytree(source, out / "model")
    (out / "losses.jsonl").write_bytes(b"")
    model, _ = load(source)
    note = f"The model was not fine-tuned, it is the base model: {pairs.summary['train']} training pairs are too few."
    manifest.summary = {
        "trained": False,
        "parameters": sum(p.numel() for p in model.parameters()),
        "pairs": pairs.summary["train"],
        "heldout_pairs": pairs.summary["heldout"],
        "steps": 0,
        "notes": [note],
    }
    log.warning("%s", note)
    return [path for path in sorted((out / "model").rglob("*")) if path.is_file()] + [out / "losses.jsonl"]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    quiet()
    import torch

    torch.set_num_threads(settings["threads"])
    source, out = Manifest.read(args.model).sound("model/").folder / "model", args.manifest.parent
    if not enough(args.pairs, "train"):
        return passed_on(source, out, Manifest.read(args.pairs), manifest)
    model, _ = load(source)
    micro = check(settings, args.processes, model)
    del model
    before, number, parameters = heldout_loss(source, args.pairs, settings)
    log.info("held-out loss before: %.4f nats/token over %s answer tokens", before, f"{number:,}")
    checkpoints = args.checkpoints / manifest.fingerprint
    same_inputs(checkpoints, digest(canonical([Manifest.read(path).files for path in (args.model, args.pairs)])))
    job = Job(
        settings=settings,
        model=str(source),
        pairs=str(args.pairs),
        out=str(out),
        checkpoints=str(checkpoints),
        checkpoint_every=args.checkpoint_every,
        max_skipped_steps=args.max_skipped_steps,
        processes=args.processes,
        micro_batch_size=micro,
        activation_checkpointing=args.activation_checkpointing,
        tensorboard=args.tensorboard,
        wandb=args.wandb,
        wandb_project=args.wandb_project,
        logs=[str(path) for path in (args.log, checkpoints / cli.LOG) if path],
    )
    launch(job)
    listen_no_more()
    rows = [json.loads(line) for line in (out / "losses.jsonl").read_text(encoding="utf-8").splitlines()]
    losses, skipped = [row for row in rows if "loss" in row], [row["step"] for row in rows if "skipped" in row]
    after, _, _ = heldout_loss(out / "model", args.pairs, settings)
    if not losses or not math.isfinite(after) or not all(math.isfinite(row["loss"]) for row in losses):
        raise cli.InputError(f"the loss is no longer finite ({after}); lower finetune.train.learning_rate")
    log.info("held-out loss after: %.4f nats/token", after)
    pairs = Manifest.read(args.pairs)
    notes = [
        f"{len(skipped)} of {rows[-1]['step']} steps were skipped, since their gradient was not finite: "
        f"{', '.join(map(str, skipped))} (their pairs are in losses.jsonl)."
    ]
    manifest.summary = {
        "trained": True,
        "parameters": parameters,
        "pairs": pairs.summary["train"],
        "heldout_pairs": pairs.summary["heldout"],
        "heldout_tokens": number,
        "steps": rows[-1]["step"],
        "loss_first": losses[0]["loss"],
        "loss_last": losses[-1]["loss"],
        "heldout_loss_before": round(before, 6) if number else None,
        "heldout_loss_after": round(after, 6) if number else None,
        "skipped_steps": skipped,
        "notes": notes if skipped else [],
    }
    clear(checkpoints)
    return [path for path in sorted((out / "model").rglob("*")) if path.is_file()] + [out / "losses.jsonl"]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "finetune.train",
        __doc__,
        "--config config.yaml --model results/main/pretrain/train/manifest.json "
        "--pairs results/main/finetune/pairs/manifest.json --manifest /tmp/finetune/manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of pretrain.train")
    parser.add_argument("--pairs", required=True, type=Path, help="manifest of finetune.pairs")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder of checkpoints")
    cli.placement(parser, *OPTIONS)
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
