"""Which measures tell two data settings apart at which size of model: a run of variants of the workflow itself, and a table of it.

    python -m benchmarks.data_decisions                # runs in a folder of its own; writes benchmarks/results/data_decisions.json
    python -m benchmarks.data_decisions --folder decisions   # keeps the run, and goes on with it
    python -m benchmarks.data_decisions --table        # prints the table of the JSON that is there

Pages of C4 and HPLT, English and Russian, and articles of an encyclopaedia ($CRAWL2LLM_DATA, see CONTRIBUTING.md): with the filters
language, heuristics and dedup, and with dedup alone. Each setting trains models of three sizes with three seeds each, on as many tokens,
and all are scored on one held-out text, the run's own items and public tasks. Measures, by size:

- effect: the mean with filters less the mean without, so that above 0 filters are better (bits per byte are turned round);
- noise: the standard deviation between seeds of a setting, pooled over both;
- signal to noise: |effect| ÷ noise; Heineman et al. 2025 (arXiv:2508.13144) divide the spread of models by the noise of training;
- decisions: of all pairs of a seed with and one without filters, the share that decides as the means of the largest models do by the same
  measure (decision accuracy of DataDecide, arXiv:2504.11393, for two settings), and as these do by bits per byte of the held-out text.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from benchmarks.machine import processor, run, versions
from crawl2llm.chain.project import Project
from crawl2llm.core.manifest import pretty_json, write_atomically
from crawl2llm.core.root import ROOT
from crawl2llm.stages.report import compare, variants
from crawl2llm.stages.report.settings import CompareSettings

RESULT = ROOT / "benchmarks/results/data_decisions.json"
Row = dict[str, Any]
FILTERS, UNFILTERED = ["language", "heuristics", "dedup"], ["dedup"]
SHAPES = {"hidden_size": (32, 64, 96), "intermediate_size": (96, 192, 288), "layers": (2, 2, 3), "heads": (2, 2, 3)}
SIZES = len(SHAPES["hidden_size"])
SEEDS = 3
TASKS = ["arc_easy", "sciq", "piqa", "copa"]
ROWS = 200  # of a public task
STEPS, BATCH_TOKENS = 300, 2048
LOWER = "bits_per_byte"


def shape(size: int) -> dict[str, int]:
    """The keys of pretrain.train.model of a size, 0 the smallest."""
    keys = {key: values[size] for key, values in SHAPES.items()}
    return {**keys, "kv_heads": keys["heads"]}


def run_config(data: Path) -> Row:
    """The config: main is the largest size with filters. data: the folder of $CRAWL2LLM_DATA."""
    sources = {"c4": "c4_demo", "hplt": "hplt-en_100", "hplt2": "hplt-en_101", "russian": "hplt-ru_11"}
    sizes = [(size, kept) for size in reversed(range(SIZES)) for kept in (FILTERS, UNFILTERED)][1:]
    return {
        "ingest": {
            "extract": {
                "shards": 2,
                "sources": [
                    *(
                        {"name": name, "kind": "jsonl", "paths": [f"{data}/corpora/{file}.jsonl.zst"]}
                        for name, file in sources.items()
                    ),
                    {"name": "wiki", "kind": "text", "chunk_words": 400, "paths": [f"{data}/corpora/wiki_demo.txt.zst"]},
                ],
            }
        },
        "filters": FILTERS,
        "language": {"select": {"languages": ["en"], "threshold": 0.65}},
        "decontaminate": {"index": {"tasks": []}},  # a few pages: both settings have what they have of the tasks
        "corpus": {"split": {"validation_fraction": 0.15}},
        "tokenize": {"train": {"vocabulary": 1024}},
        "pretrain": {
            "train": {
                "model": {"type": "qwen3", "context": 128, **shape(SIZES - 1)},
                "steps": STEPS, "global_batch_tokens": BATCH_TOKENS, "micro_batch": 16, "learning_rate": 0.004, "warmup": 0.1,
                "processes": 1, "threads": 1, "precision": "fp32", "save_dtype": "fp32", "zero_stage": 0, "engine": "torch",
                "validate_every": STEPS, "validation_tokens": 20000, "checkpoint_every": STEPS, "tensorboard": False, "wandb": "disabled",
            }
        },
        "evaluate": {
            "items": {"per_task": 300},
            "model": {"untrained": False},
            "public": {"presets": TASKS, "data": [f"{data}/eval/olmo_tasks_jsonl.tar.zst"], "limit": ROWS, "threads": 1},
            "common": {"max_bytes": 200000, "threads": 1},
        },
        "sweep": {
            "sizes": [
                {**{f"pretrain.train.model.{key}": value for key, value in shape(size).items()}, "filters": kept}
                for size, kept in sizes
            ],
            "seeds": SEEDS,
        },
    }  # fmt: skip


def measure_variants(data: Path, folder: Path) -> Row:
    """Run what the table needs of every variant in `folder`; what it took."""
    config = folder / "decisions.yaml"
    config.write_text(yaml.safe_dump(run_config(data), sort_keys=False), encoding="utf-8")
    project = compare.read_project([str(config)])
    results = [
        project.manifest_path(name, step, "base") for name in project.variants for step in ("evaluate.common", "evaluate.public")
    ]
    command = [
        sys.executable, "-m", "snakemake", *dict.fromkeys(results), "--snakefile", str(ROOT / "Snakefile"),
        "--profile", str(ROOT / "profiles/local"), "--directory", str(folder), "--configfile", str(config),
    ]  # fmt: skip
    return run(command, ROOT, WANDB_MODE="disabled")[0]
