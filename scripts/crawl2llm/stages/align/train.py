"""Align a model by preferences or by rewards: DPO and KTO; GRPO, RLOO, REINFORCE and PPO.

Trains as finetune.train does, by the same engines and with the same checkpoints, signals and files (stages/finetune/train.py). Writes
`<model>/model/`, `<model>/losses.jsonl`, and metrics.jsonl beside them with rewards, margins, divergence and lengths. What was measured
of the held-out rows before and after is in the manifest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain.model_registry import PPO
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align.batches import TEXTS_BY_METHOD
from crawl2llm.stages.align.online import RewardRun
from crawl2llm.stages.align.ppo import PPORun
from crawl2llm.stages.align.preferences import PreferenceRun
from crawl2llm.stages.align.run import STEP
from crawl2llm.stages.align.settings import TrainSettings
from crawl2llm.training import program
from crawl2llm.training.tuning import remove_checkpoints, run_tuning


def body(args: argparse.Namespace, settings: TrainSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    if (method := settings.method) in TEXTS_BY_METHOD:
        return run_tuning(PreferenceRun, args, settings, manifest)
    return run_tuning(PPORun if method == PPO else RewardRun, args, settings, manifest)


main = program.TrainingProgram(STEP, __doc__, TrainSettings, body, after=remove_checkpoints)


if __name__ == "__main__":
    raise SystemExit(main())
