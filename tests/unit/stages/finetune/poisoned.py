"""crawl2llm.stages.finetune.train, for what the tests ask of it beside one training.

With CASES, such as `torch-3 deepspeed-0-4 torch-0-4-7`, it trains once for each engine, ZeRO stage, micro-batch and loss_chunk (those of
the config where a case has none), with what a word of MORE sets, into a folder of that name beside the manifest: in one process, since
starting takes longest. A case
`of:torch-3` is made from the model of that case. With DELAY a checkpoint takes so many seconds more to write, and there are times
(tests/unit/stages/pretrain/slow_disk.py). With KILLED process 0 is killed where it is to write the manifest. POISON names steps
whose gradient is infinite on the last process: `3,10`; with `loss:` before, whose loss is none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from crawl2llm.chain.fingerprint import canonical_json
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.finetune import train
from crawl2llm.training import group
from crawl2llm.training.pair_run import Run
from crawl2llm.training.run_state import RunState
from tests.unit.stages.finetune.words import MORE
from tests.unit.stages.pretrain import slow_disk

kind, _, steps = os.environ.get("POISON", "").rpartition(":")
POISONED = {int(step) for step in steps.split(",") if step}
LAST = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
step_of = Run.take_step


def step(self: Run, state: RunState, batch: Any) -> None:
    if state.step not in POISONED or not LAST:
        step_of(self, state, batch)
        return
    forward_of = self.engine.forward

    def forward(inputs: torch.Tensor, **more: Any) -> Any:
        found = forward_of(inputs, **more)
        if kind == "loss":
            found.logits = found.logits * float("nan")
        else:
            found.logits.register_hook(lambda gradient: gradient * float("inf"))
        return found

    self.engine.forward = forward  # type: ignore[method-assign]
    try:
        step_of(self, state, batch)
    finally:
        del self.engine.forward


Run.take_step = step  # type: ignore[method-assign]


def killed(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


if "DELAY" in os.environ:
    slow_disk.keep_times(Run)
if "KILLED" in os.environ:
    Manifest.write = killed  # type: ignore[method-assign]


class Ended(Exception):
    """The exit status of one training of several."""


def end(status: int) -> None:
    raise Ended(status)


def several(cases: list[str], argv: list[str]) -> None:
    """Train each case in this process; ends it with the first status that is not 0."""
    leave, group.leave_and_exit, os._exit = group.leave_and_exit, end, end  # type: ignore[assignment]
    config, manifest, source = (argv.index(name) + 1 for name in ("--config", "--manifest", "--model"))
    given, path, base = json.loads(argv[config]), Path(argv[manifest]), argv[source]
    for case in cases:
        name, _, parent = case.partition("of:")
        argv[source] = str(path.parent / parent / path.name) if parent else base
        engine, stage, *micro = (name or "torch-0-").split("-")
        settings = {**given["config"], "engine": engine, "zero_stage": int(stage)}
        words = [word for word in micro if word in MORE]
        more = zip(("micro_batch", "loss_chunk"), [word for word in micro if word not in MORE], strict=False)
        settings |= {key: int(value) for key, value in more if value}
        settings |= {key: value for word in words for key, value in MORE[word].items()}
        argv[config] = canonical_json({**given, "config": settings})
        argv[manifest] = str(path.parent / case.replace(":", "-") / path.name)
        try:
            train.main(argv)
        except Ended as ended:
            if ended.args[0]:
                raise SystemExit(ended.args[0]) from None
    group.leave_and_exit = leave
    sys.stdout.flush()
    torch.distributed.barrier()


if __name__ == "__main__":
    if "CASES" in os.environ:
        several(os.environ["CASES"].split(), sys.argv[1:])
    else:
        raise SystemExit(train.main())
