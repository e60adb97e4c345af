"""stages/align/train.py, or what PROGRAM names, once for each of CASES, as tests/unit/stages/finetune/poisoned.py does fine-tuning."""

from __future__ import annotations

import os
import sys

from crawl2llm.stages.align import reward, train
from tests.unit.stages.finetune import poisoned

program = {"reward": reward, "train": train}[os.environ.get("PROGRAM", "train")]
poisoned.train = program  # type: ignore[attr-defined]

if __name__ == "__main__":
    if "CASES" in os.environ:
        poisoned.several(os.environ["CASES"].split(), sys.argv[1:])
    else:
        raise SystemExit(program.main())
