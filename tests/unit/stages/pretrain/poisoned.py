"""crawl2llm.stages.pretrain.train, whose last process meets bad numbers in the steps that POISON names.

POISON is `loss:7` (the forward pass gives no number), `gradient:7,9` (only the backward pass does not), `high:7` (logits, and so the
loss, are much too large) or `steep:7` (only the gradient is), or several of these with a space between.
Everything else is the program itself. With CASES, such as `0-fp32 3-bf16-6 torch-0-fp32`, it trains once for each engine (deepspeed, where
none is named), ZeRO stage, precision and number of steps (that of the config where a case has none), into a folder of that name beside the
manifest: in one process, since starting takes longest. AHEAD is `20:6`: after step 20 the batches are those of 6 steps later.
With HOLD, a step, no process begins it: a test kills them before it, however late the test comes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crawl2llm.chain.fingerprint import canonical_json
from crawl2llm.stages.pretrain import train
from crawl2llm.training import group
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState

POISON = {
    int(step): kind
    for part in os.environ.get("POISON", "").split()
    for kind, steps in [part.split(":")]
    for step in steps.split(",")
}
LAST = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
HOLD = int(os.environ.get("HOLD", "0"))
now = 0
step_of = Run.take_step


def step(self: Run, state: RunState, batch: Any) -> None:
    global now
    while state.step == HOLD:
        time.sleep(1)
    now = state.step + state.ahead // self.plan.sequences  # the poison is in the batch
    if "forward" not in vars(self.engine):
        self.engine.forward = partial(forward, self.engine.forward)  # type: ignore[method-assign]
    try:
        step_of(self, state, batch)
    finally:
        now = 0


def forward(forward_of: Callable[..., Any], inputs: torch.Tensor, **more: Any) -> Any:
    found = forward_of(inputs, **more)
    poison = POISON.get(now) if LAST else None
    if poison == "gradient":
        found.logits.register_hook(lambda gradient: gradient * float("inf"))
    if poison == "loss":
        found.logits = found.logits * float("nan")
    if poison == "steep":
        found.logits.register_hook(lambda gradient: gradient * 1000)
    if poison == "high":
        found.logits = found.logits * 50
    return found


Run.take_step = step  # type: ignore[method-assign]
if "AHEAD" in os.environ:
    after, more = map(int, os.environ["AHEAD"].split(":"))
    windows_of = Run.step_windows
    Run.step_windows = lambda self, number: windows_of(self, number + more * (number > after))  # type: ignore[method-assign]


class Ended(Exception):
    """The exit status of one training of several."""


def end(status: int) -> None:
    raise Ended(status)


def several(cases: list[str], argv: list[str]) -> None:
    """Train each case in this process; ends it with the first status that is not 0."""
    leave, group.leave_and_exit, os._exit = group.leave_and_exit, end, end  # type: ignore[assignment]
    config, manifest = argv.index("--config") + 1, argv.index("--manifest") + 1
    given, path = json.loads(argv[config]), Path(argv[manifest])
    for case in cases:
        stage, precision, *steps = case.removeprefix("torch-").split("-")
        settings = {**given["config"], "zero_stage": int(stage), "precision": precision}
        settings |= {"engine": "torch"} if case.startswith("torch-") else {}
        settings |= {"steps": int(steps[0])} if steps else {}
        argv[config] = canonical_json({**given, "config": settings})
        argv[manifest] = str(path.parent / case / path.name)
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
