"""A process of finetune.train, whose gradient is infinite in the optimizer steps that POISON names, on the last process."""

from __future__ import annotations

import os
import sys
from typing import Any

from scripts.finetune import sft

STEPS = {int(step) for step in os.environ["POISON"].split(",")}
LAST = int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1
load = sft.load


def poisoned(*given: Any) -> tuple[Any, Any]:
    from scripts.finetune import watch

    model, tokenizer = load(*given)
    step_of = watch.Trainer.training_step

    def training_step(self: Any, wrapped: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        hook = None
        if self.state.global_step + 1 in STEPS and LAST:
            hook = next(self.model.parameters()).register_hook(lambda gradient: gradient * float("inf"))
        try:
            return step_of(self, wrapped, inputs, *rest, **named)
        finally:
            if hook:
                hook.remove()

    watch.Trainer.training_step = training_step  # type: ignore[method-assign]
    return model, tokenizer


if __name__ == "__main__":
    sft.load = poisoned
    raise SystemExit(sft.main(sys.argv[1]))
