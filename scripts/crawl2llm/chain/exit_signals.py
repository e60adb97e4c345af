"""Programs that a signal ended: which signal, whether for lack of memory as far as the machine says, and what to change."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path

from crawl2llm.chain.model_registry import MAKERS
from crawl2llm.core.console import singular_or_plural
from crawl2llm.core.free_memory import memory_groups

VMSTAT = Path("/proc/vmstat")
KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)

# What to lower where memory was too small, by step.
LOWER = {
    "pretrain.train": "pretrain.train.micro_batch, pretrain.train.processes or the size of the model (pretrain.train.model)",
    "pretrain.continue": "pretrain.continue.micro_batch, pretrain.continue.processes or pretrain.continue.context",
    "finetune.train": "finetune.train.micro_batch, finetune.train.processes or the size of the model (pretrain.train.model)",
    "compress.prune": "compress.prune.micro_batch, compress.prune.processes or the size of the model (pretrain.train.model)",
    "compress.teach": "compress.teach.batch_size",
    "compress.distil": "compress.distil.micro_batch, compress.distil.processes, or the teacher: with top_k it is not there",
    "align.reward": "align.reward.micro_batch, align.reward.processes or the size of the model (pretrain.train.model)",
    "align.train": "align.train.micro_batch, align.train.processes or the size of the model (pretrain.train.model)",
    "evaluate.items": "evaluate.items.counted_tokens",
    "evaluate.model": "evaluate.model.batch_size, or the size of the model (pretrain.train.model)",
    "evaluate.public": "evaluate.public.batch_size, or the size of the model (pretrain.train.model)",
    "tokenize.train": "tokenize.train.train_bytes, or the rule's threads (`set-threads` in the profile)",
    "tokenize.compare": "tokenize.train.train_bytes, or the rule's threads (`set-threads` in the profile)",
    "quality.train": "quality.train.max_positives, quality.train.max_negatives or quality.train.buckets",
    "quality.ngrams": "quality.ngrams.documents",
    "quality.transformers": "quality.transformers.batch_tokens",
    "quality.lm": "quality.lm.memory_mb or quality.lm.max_documents",
    "topics.train": "topics.train.documents or topics.train.characters",
    "quality.calibrate": "quality.calibrate.max_documents",
}
LOWER_ELSE = "the tasks that run at once (`--cores`), or the size of a shard: more of them, ingest.extract.shards"
RESUME_TEXT = "Start the same command again to resume after its newest checkpoint, if it has one"

OTHER_SIGNALS = {
    signal.SIGILL: "this CPU lacks an instruction that a library was compiled for: install on a node of the same kind "
    "(`make install`)",
    signal.SIGBUS: "a file or shared memory (/dev/shm) that was mapped could not be read or written: is a disk full?",
    signal.SIGXCPU: "the limit of CPU time (`ulimit -t`) was reached",
    signal.SIGXFSZ: "the limit of a file's size (`ulimit -f`) was reached",
}


def oom_kill_counts() -> dict[Path, int]:
    """How many processes the kernel has ended for lack of memory, by the file that says so; files may be absent.

    The whole machine's is `oom_kill` in /proc/vmstat (proc(5)); a control group's is in `memory.events` (cgroup v2,
    kernel.org/doc/html/latest/admin-guide/cgroup-v2.html) or `memory.oom_control` (v1).
    """
    files = []
    for own_group, *_ in memory_groups():
        files += [own_group / "memory.events", own_group / "memory.oom_control"]
    files.append(VMSTAT)  # last, for it counts what the groups count too
    counts = {}
    for file in files:
        with contextlib.suppress(OSError):
            if match := KILLS.search(file.read_text(encoding="utf-8")):
                counts[file] = int(match.group(1))
    return counts


def lack_of_memory(before: dict[Path, int]) -> str | None:
    """What the machine says of memory since `before`: None if it ended no process for lack of it, or says nothing."""
    for file, number in oom_kill_counts().items():
        if number > before.get(file, number):
            more = number - before[file]
            where = "the machine" if file == VMSTAT else "this control group"
            processes = singular_or_plural(more, "process", "processes")
            return f"the kernel ended {more} {processes} of {where} for lack of memory"
    return None


def signal_name(number: int) -> str:
    """`SIGKILL (signal 9)`."""
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def signal_of_status(status: int) -> int | None:
    """The signal in an exit status: -9, as Python gives it, or 137, as a shell does; None if there is none.

    Statuses from 129 on that name no signal, and 255, which ssh and srun use for errors of their own, do not count as a signal.
    """
    number = -status if status < 0 else status - 128
    return number if number in {member.value for member in signal.Signals} and number > 0 else None


def resume_hint(step: str) -> str:
    """What to do after the failure of a step that keeps checkpoints; "" for the others."""
    return f". {RESUME_TEXT}" if step in MAKERS else ""


def signal_explanation(number: int, step: str, memory: str | None) -> str:
    """What a signal means and what to do: the rest of a sentence that begins with who was ended by it.

    `memory` is what `lack_of_memory` said, or another sign of it (SLURM's).
    """
    text = f"was ended by {signal_name(number)}"
    if number == signal.SIGKILL:
        lower = f"Lower {LOWER.get(step, LOWER_ELSE)}"
        if memory:
            text += f", most likely out of memory: {memory}. {lower}, or give it more memory"
        else:
            text += ": by a person or a batch system, or out of memory (this machine does not record it). "
            text += f"If it was memory: {lower[0].lower()}{lower[1:]}"
    elif number in OTHER_SIGNALS:
        text += f": {OTHER_SIGNALS[signal.Signals(number)]}"
    return text + resume_hint(step)
