"""Fine-tune a model on the question and answer pairs, with TRL's SFTTrainer and a loss on answers alone.

Writes `<model>/model/` (safetensors and tokenizer) and `<model>/losses.jsonl` (one line an optimizer step). The held-out loss
before and after, in nats an answer token, is in the manifest. An interrupted run resumes from its newest complete checkpoint in
`<checkpoints>/<digest of settings and inputs>/`; these are removed in the end. SIGTERM, SIGINT and SIGUSR1 make it finish
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

from scripts.finetune.loss import completion_loss
from scripts.finetune.sft import MARK, Job, clear, fine_tune, newest, quiet
from scripts.finetune.template import enough, read_pairs
from scripts.models.load import home, load, name, weights
from scripts.training import memory, runs
from scripts.training.processes import RESUBMIT, environments, free_port, listen_no_more, supervise
from scripts.training.sealed import opened
from scripts.workflow import cli
from scripts.workflow.console import log
from scripts.workflow.fingerprint import code
from scripts.workflow.manifest import Manifest, task_of

WHERE = "finetune.train"


def check(settings: dict[str, Any], processes: int, model: Any) -> int:
    """The micro-batch to use: the largest up to `micro_batch` that fits. InputError for what cannot fit."""
    batch, length = settings["batch_size"], settings["max_length"]
    if batch % processes:
        raise cli.InputError(
            f"finetune.train.batch_size {batch} is not a multiple of finetune.train.processes {processes}"
        )
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit and length > limit:
        raise cli.InputError(f"finetune.train.max_length is {length}; the model's context is {limit} tokens")
    share = batch // processes
    return next(size for size in range(min(settings["micro_batch"], share), 0, -1) if share % size == 0)


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


def taking_part(checkpoints: Path) -> list[dict[str, Any]]:
    """Where the code changed since the first checkpoint, the next start included, as the seal of the newest says.

    Checkpoints of a run that other code finished are removed: they are none of this code's work, and training starts again from its first
    step.
    """
    found = newest(checkpoints)
    if found is None:
        return []
    held = opened(found, MARK)
    modules = runs.changed(held["code"], code("scripts.finetune.train"))
    if not modules:
        return list(held["changed"])
    if held["step"] >= held["of"]:
        log.warning(
            "this training was finished under other code (%s), so it starts again from its first step",
            ", ".join(modules),
        )
        clear(checkpoints)
        return []
    return [*held["changed"], runs.resumed(held["step"], modules)]


def passed_on(args: argparse.Namespace, source: Path, manifest: Manifest) -> list[Path]:
    """Without enough pairs: the model that it is made from as it is, and a summary that says so; returns the files.

    source: the folder of that model's weights.
    """
    out, pairs = home(args.manifest), Manifest.read(args.pairs)
    shutil.rmtree(out / "model", ignore_errors=True)
    shutil.copytree(source, out / "model")
    (out / "losses.jsonl").write_bytes(b"")
    model, _ = load(source)
    who, few = task_of(args.manifest) or "The model", pairs.summary["train"]
    note = f"{who} was not fine-tuned, it is the model {name(args.model)}: {few} training pairs are too few."
    manifest.summary = {
        "trained": False,
        "parameters": sum(p.numel() for p in model.parameters()),
        "pairs": pairs.summary["train"],
        "heldout_pairs": pairs.summary["heldout"],
        "steps": 0,
        "notes": [note],
    }
    log.warning("%s", note)
    return files_of(out)


def files_of(out: Path) -> list[Path]:
    """The files of a model that the manifest lists."""
    return [path for path in sorted((out / "model").rglob("*")) if path.is_file()] + [out / "losses.jsonl"]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    quiet()
    import torch

    torch.set_num_threads(settings["threads"])
    _, source = weights(args.model)
    out = home(args.manifest)
    out.mkdir(exist_ok=True)
    if not enough(args.pairs, "train"):
        return passed_on(args, source, manifest)
    has = memory.available()
    model, _ = load(source)
    micro = check(settings, args.processes, model)
    if not torch.cuda.is_available():
        advice = [f"lower {WHERE}.{key}" for key in ("micro_batch", "max_length", "processes")]
        batch, recomputed = (micro, settings["max_length"]), args.activation_checkpointing
        memory.check_loaded("fine-tuning", model, batch, has, advice, training=args.processes, recomputed=recomputed)
    del model
    checkpoints = cli.checkpoints(args, settings)
    with runs.locked(checkpoints):
        files = tuned(args, settings, manifest, source, checkpoints, micro)
    runs.forget(checkpoints)
    return files


def tuned(
    args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest, source: Path, checkpoints: Path, micro: int
) -> list[Path]:
    """Train, measure before and after, and fill the manifest; the files to list."""
    out = home(args.manifest)
    before, number, parameters = heldout_loss(source, args.pairs, settings)
    log.info("held-out loss before: %.4f nats/token over %s answer tokens", before, f"{number:,}")
    runs.announce(checkpoints, args.manifest, manifest.fingerprint)
    changed = taking_part(checkpoints)
    job = Job(
        name=task_of(args.manifest),
        settings=settings,
        model=str(source),
        pairs=str(args.pairs),
        out=str(out),
        checkpoints=str(checkpoints),
        checkpoint_every=args.checkpoint_every,
        max_skipped_steps=args.max_skipped_steps,
        processes=args.processes,
        micro_batch=micro,
        activation_checkpointing=args.activation_checkpointing,
        tensorboard=args.tensorboard,
        wandb=args.wandb,
        wandb_project=args.wandb_project,
        changed=changed,
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
        "notes": [*(notes if skipped else []), *runs.note(changed)],
        **({"other_code": changed} if changed else {}),
    }
    clear(checkpoints)
    return files_of(out)


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "finetune.train",
        __doc__,
        "--config config.yaml --model results/main/pretrain/train/manifest.json "
        "--pairs results/main/finetune/pairs/manifest.json --manifest /tmp/finetune/sft.manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of the model that it is made from")
    parser.add_argument("--pairs", required=True, type=Path, help="manifest of finetune.pairs")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder of checkpoints")
    cli.placement(parser, "finetune.train")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
