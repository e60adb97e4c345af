"""Train a reward model: the body of a model with a head that gives an answer a score, on pairs of which one answer is preferred.

Trains as finetune.train does, by the same engines and with the same checkpoints, signals and files (stages/finetune/train.py). Writes
`<model>/model/`, which AutoModelForSequenceClassification of transformers reads, `<model>/losses.jsonl`, and metrics.jsonl beside them.
What was measured of the held-out pairs before (with a random head) and after is in the manifest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align.comparisons import STEP, ComparisonRun
from crawl2llm.stages.align.settings import RewardSettings
from crawl2llm.training import program
from crawl2llm.training.tuning import remove_checkpoints, run_tuning


def body(args: argparse.Namespace, settings: RewardSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    return run_tuning(ComparisonRun, args, settings, manifest)


main = program.TrainingProgram(STEP, __doc__, RewardSettings, body, after=remove_checkpoints)


if __name__ == "__main__":
    raise SystemExit(main())
