"""Fine-tune a model on the question and answer pairs, by the engines of pre-training, with a loss on answers alone.

Writes `<model>/model/` (safetensors and tokenizer) and `<model>/losses.jsonl` (one line an optimizer step), and metrics.jsonl, which also
holds times, beside them. The held-out loss before and after, in nats an answer token, is in the manifest. Started by
crawl2llm.training.launch; an interrupted run resumes from its newest complete checkpoint in `<checkpoints>/<digest of settings and
inputs>/`, also with another number of processes. Checkpoints are removed once the manifest stands. SIGTERM, SIGINT and SIGUSR1 make it
finish its step, save a checkpoint and end with status 85 (RESUBMIT): start it again to resume.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.finetune.settings import TrainSettings
from crawl2llm.training import program
from crawl2llm.training.pair_run import Run
from crawl2llm.training.tuning import remove_checkpoints, run_tuning


def body(args: argparse.Namespace, settings: TrainSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    return run_tuning(Run, args, settings, manifest)


main = program.TrainingProgram("finetune.train", __doc__, TrainSettings, body, after=remove_checkpoints)


if __name__ == "__main__":
    raise SystemExit(main())
