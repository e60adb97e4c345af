"""Train a reward model: the body of a model with a head that gives an answer a score, on pairs of which one answer is preferred.

Trains as finetune.train does, by the same engines and with the same checkpoints, signals and files (stages/finetune/train.py). Writes
`<model>/model/`, which AutoModelForSequenceClassification of transformers reads, `<model>/losses.jsonl`, and metrics.jsonl beside them.
What was measured of the held-out pairs before (with a random head) and after is in the manifest.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align.comparisons import STEP, ComparisonRun
from crawl2llm.training import program
from crawl2llm.training.tuning import remove_checkpoints, run_tuning


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    return run_tuning(ComparisonRun, args, settings, manifest)


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        STEP,
        __doc__,
        "--config config.yaml --model results/main/finetune/train/sft.manifest.json "
        "--pairs results/main/align/pairs/manifest.json --manifest /tmp/align/rm.manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of the model that it is made from")
    parser.add_argument("--pairs", required=True, type=Path, help="manifest of align.pairs")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder of all runs' checkpoints")
    command_line.add_placement_options(parser, STEP)
    return program.run(parser, body, argv, remove_checkpoints)


if __name__ == "__main__":
    raise SystemExit(main())
