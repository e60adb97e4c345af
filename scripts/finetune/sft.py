"""The fine-tuning itself: TRL's SFTTrainer on prompts and completions, in this process or in a group of them.

`python -m scripts.finetune.sft JOB.json` is each process of a group; finetune.train calls `fine_tune` where one
is enough. Checkpoints are TRL's own; one counts only with the seal that is written after all its files (scripts/training/sealed.py).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.finetune.template import read_pairs
from scripts.models.load import load
from scripts.training.processes import RESUBMIT, listen
from scripts.training.runs import POINTER
from scripts.training.sealed import opened
from scripts.workflow.cli import LOG
from scripts.workflow.console import log, setup
from scripts.workflow.errors import InputError
from scripts.workflow.fingerprint import code
from scripts.workflow.manifest import write_atomically

MARK = "complete.json"


@dataclass(frozen=True)
class Job:
    """What one fine-tuning run needs; all of it JSON. `settings` are the tracked keys of finetune.train."""

    name: str  # of the model
    settings: dict[str, Any]
    model: str  # folder of the model that it is made from, and its tokenizer
    pairs: str  # manifest of finetune.pairs
    out: str  # folder that gets model/ and losses.jsonl
    checkpoints: str
    checkpoint_every: int  # optimizer steps; 0: none
    max_skipped_steps: int
    processes: int
    micro_batch: int
    activation_checkpointing: bool
    tensorboard: bool
    wandb: str  # disabled, offline or online
    wandb_project: str
    changed: list[dict[str, Any]]  # where the code changed up to here (scripts/training/runs.py)
    logs: list[str]

    def write(self, path: Path) -> None:
        """Write the job for `Job.read` in another process."""
        write_atomically(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        """The job that `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def quiet() -> None:
    """Keep the libraries off the network. To be called before they are imported."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "TRL_EXPERIMENTAL_SILENCE"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _charts(job: Job) -> list[str]:
    """What TRL reports to; its files go beside the checkpoints."""
    folder = Path(job.checkpoints).resolve()
    if job.wandb != "disabled":
        os.environ |= {"WANDB_MODE": job.wandb, "WANDB_PROJECT": job.wandb_project, "WANDB_DIR": str(folder)}
        os.environ |= {"WANDB_RUN_ID": folder.name, "WANDB_RESUME": "allow"}  # the parts of an interrupted run are one
        folder.mkdir(parents=True, exist_ok=True)  # W&B takes another folder where this one is absent
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
    return ["tensorboard"] * job.tensorboard + ["wandb"] * (job.wandb != "disabled")


def clear(folder: Path) -> None:
    """Remove a finished run's checkpoints; charts beside them stay."""
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    for name in (LOG, POINTER, "README.md"):  # the latter is TRL's model card
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def newest(folder: Path) -> Path | None:
    """The complete checkpoint of the most steps; incomplete ones are removed, so that none is counted or kept."""
    complete: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        try:
            complete.append((opened(path, MARK)["step"], path))
        except (OSError, ValueError, KeyError) as error:
            log.warning("%s is removed, it is not complete: %s", path, error)
            shutil.rmtree(path, ignore_errors=True)
    return max(complete)[1] if complete else None


def _arguments(job: Job, cuda: bool) -> Any:
    from trl import SFTConfig

    s = job.settings
    share = s["batch_size"] // (job.processes * job.micro_batch)
    return SFTConfig(
        output_dir=job.checkpoints,
        per_device_train_batch_size=job.micro_batch,
        gradient_accumulation_steps=share,
        num_train_epochs=s["epochs"],
        learning_rate=s["learning_rate"],
        lr_scheduler_type={"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}[s["schedule"]],
        warmup_steps=s["warmup"],
        weight_decay=s["weight_decay"],
        adam_beta1=s["beta1"],
        adam_beta2=s["beta2"],
        max_grad_norm=0.0,  # watch.py clips, and skips what is not finite
        optim="adamw_torch",
        max_length=s["max_length"],
        completion_only_loss=True,
        seed=s["seed"],
        data_seed=s["seed"],
        bf16=s["precision"] == "bf16",
        fp16=False,
        use_cpu=not cuda,
        ddp_backend=("nccl" if cuda else "gloo") if job.processes > 1 else None,
        ddp_timeout=3600,  # the first process writes checkpoints and the model of one node while the others wait
        ddp_find_unused_parameters=False if job.processes > 1 else None,
        activation_checkpointing=job.activation_checkpointing,
        dataloader_num_workers=0,
        dataloader_pin_memory=cuda,
        save_strategy="steps" if job.checkpoint_every else "no",
        save_steps=job.checkpoint_every or 500,
        save_total_limit=2,
        logging_strategy="steps",
        logging_steps=1,
        logging_first_step=True,
        report_to=_charts(job) or "none",
        run_name=f"{job.name}-{Path(job.checkpoints).name}",
        disable_tqdm=True,
        log_level="error",
        log_level_replica="error",
        push_to_hub=False,
    )


def fine_tune(job: Job) -> bool:
    """Train on `train.jsonl` and write `model/` and `losses.jsonl` into `job.out` (from the first process alone).

    Returns False, and writes neither, where a signal stopped it after a checkpoint.
    """
    quiet()
    import torch
    from datasets import Dataset
    from datasets.utils.logging import disable_progress_bar
    from transformers import PrinterCallback

    from scripts.finetune import watch

    disable_progress_bar()
    torch.set_num_threads(job.settings["threads"])
    rows, template = read_pairs(Path(job.pairs), "train")
    model, tokenizer = load(job.model)
    data = Dataset.from_list(
        [{"prompt": template.prompt(r["question"]), "completion": template.completion(r["answer"])} for r in rows]
    )
    stopping: list[int] = []
    seen = watch.Seen(rows, template, tokenizer, job.settings["max_length"])
    clipping, most = job.settings["gradient_clipping"], job.max_skipped_steps
    facts = {"code": code("scripts.finetune.train"), "changed": job.changed}
    watcher = watch.Watcher(stopping, seen, clipping, most, MARK, facts)
    trainer = watch.Trainer(
        seen,
        model=model,
        args=_arguments(job, torch.cuda.is_available()),
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=[watcher],
    )
    trainer.remove_callback(PrinterCallback)
    folder = Path(job.checkpoints)
    start = newest(folder) if trainer.is_world_process_zero() else None
    if job.processes > 1:
        box = [str(start) if start else None]
        torch.distributed.broadcast_object_list(box)
        start = Path(box[0]) if box[0] else None
    if start:
        log.info("resuming from %s", start)
    listen(lambda number, _: stopping.append(number))
    trainer.train(resume_from_checkpoint=str(start) if start else None)
    if trainer.is_world_process_zero() and watcher.stopped:
        log.info("stopped by a signal after step %s; the checkpoint is in %s", f"{trainer.state.global_step:,}", folder)
    elif trainer.is_world_process_zero():
        _save(job, trainer, tokenizer)
    if job.processes > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return not watcher.stopped


def _save(job: Job, trainer: Any, tokenizer: Any) -> None:
    from transformers import AutoConfig

    out = Path(job.out)
    model = trainer.accelerator.unwrap_model(trainer.model)
    shutil.rmtree(out / "model", ignore_errors=True)
    # Trained in fp32, kept in the type that the weights had before.
    model.to(AutoConfig.from_pretrained(job.model, local_files_only=True).dtype or trainer.model.dtype)
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    for file in (out / "model").rglob("*.safetensors"):
        file.chmod(0o644)  # safetensors leaves them to their owner alone; a group shares results
    kept = ("step", "loss", "grad_norm", "learning_rate")
    skipped = {entry["step"]: entry for entry in trainer.state.log_history if "skipped" in entry}
    lines = [
        json.dumps(skipped.get(entry["step"], {name: round(entry[name], 9) for name in kept if name in entry}))
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    write_atomically(out / "losses.jsonl", "".join(f"{line}\n" for line in lines))


def main(path: str) -> int:
    """One process of a group: the job that `path` holds; the exit status."""
    job = Job.read(Path(path))
    first = os.environ.get("RANK", "0") == "0"
    setup(f"finetune.train {job.name}".rstrip(), *([Path(name) for name in job.logs] if first else []))
    try:
        return 0 if fine_tune(job) else RESUBMIT
    except InputError as error:  # the same on every process
        if first:
            log.error("error: %s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
