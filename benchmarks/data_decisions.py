"""Which measures tell two data settings apart at which size of model: a run of variants of the workflow itself, and a table of it.

    python -m benchmarks.data_decisions                # runs in a folder of its own; writes benchmarks/results/data_decisions.json
    python -m benchmarks.data_decisions --sizes 2 --folder decisions   # the two smallest sizes; keeps the run, and goes on with it
    python -m benchmarks.data_decisions --folder decisions --read      # of a run as far as it is there; runs nothing
    python -m benchmarks.data_decisions --table        # prints the table of the JSON that is there

Pages of C4 and HPLT, English and Russian, and articles of an encyclopaedia ($CRAWL2LLM_DATA, see CONTRIBUTING.md): with the filters
language, heuristics and dedup, and with dedup alone. Each setting trains models of each size with three seeds, on as many tokens, and all
are scored on one held-out text, the run's own items and public tasks. Measures, by size:

- effect: the mean with filters less the mean without, so that above 0 filters are better (bits per byte are turned round);
- noise: the standard deviation between seeds of a setting, pooled over both;
- signal to noise: |effect| ÷ noise (as Heineman et al. 2025, arXiv:2508.13144, whose noise is that of a training's last checkpoints);
- decisions: of all pairs of a seed with and one without filters, the share that decides as the means of the largest models do by the same
  measure (decision accuracy of DataDecide, arXiv:2504.11393, for two settings), and as these do by bits per byte of the held-out text.
"""

from __future__ import annotations

import argparse
import json
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
from crawl2llm.stages.report.sweeps.noise import pooled_variance

RESULT = ROOT / "benchmarks/results/data_decisions.json"
Row = dict[str, Any]
FILTERS, UNFILTERED = ["language", "heuristics", "dedup"], ["dedup"]
SHAPES = {"hidden_size": (32, 64, 96), "intermediate_size": (96, 192, 288), "layers": (2, 2, 3), "heads": (2, 2, 3)}
SEEDS = 3
TASKS = ["arc_easy", "sciq", "piqa", "copa"]
ROWS = 200  # of a public task
STEPS, BATCH_TOKENS = 300, 2048
LOWER = "bits_per_byte"


def shape(size: int) -> dict[str, int]:
    """The keys of pretrain.train.model of a size, 0 the smallest."""
    keys = {key: values[size] for key, values in SHAPES.items()}
    return {**keys, "kv_heads": keys["heads"]}


def run_config(data: Path, size_count: int) -> Row:
    """The config: main is the largest size with filters. data: the folder of $CRAWL2LLM_DATA. size_count: how many of SHAPES."""
    sources = {"c4": "c4_demo", "hplt": "hplt-en_100", "hplt2": "hplt-en_101", "russian": "hplt-ru_11"}
    sizes = [(size, kept) for size in reversed(range(size_count)) for kept in (FILTERS, UNFILTERED)][1:]
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
                "model": {"type": "qwen3", "context": 128, **shape(size_count - 1)},
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


def measure_variants(data: Path, folder: Path, size_count: int) -> Row:
    """Run what the table needs of every variant in `folder`; what it took."""
    config = folder / "decisions.yaml"
    config.write_text(yaml.safe_dump(run_config(data, size_count), sort_keys=False), encoding="utf-8")
    project = compare.read_project([str(config)])
    results = [
        project.manifest_path(name, step, "base")
        for name in project.variants
        for step in ("evaluate.common", "evaluate.public")
    ]
    command = [
        sys.executable, "-m", "snakemake", *dict.fromkeys(results), "--snakefile", str(ROOT / "Snakefile"),
        "--profile", str(ROOT / "profiles/local"), "--directory", str(folder), "--configfile", str(config),
    ]  # fmt: skip
    return run(command, ROOT, WANDB_MODE="disabled")[0]


def settings_by_size(comparison: Row) -> list[tuple[int, dict[bool, int]]]:
    """(parameters, {whether with filters: place among the settings of `base`}), the smallest size first. comparison: compare.json."""
    parameters = {row["name"]: row["parameters"] for row in comparison["variants"]}
    changes = {setting["name"]: setting["changes"] for setting in comparison["settings"]}
    sizes: dict[int, dict[bool, int]] = {}
    for place, name in enumerate(comparison["models"]["base"]["settings"]):
        width = changes[name].get("pretrain.train.model.hidden_size", [0, 0])[
            1
        ]  # of main it is not told; the vocabulary is the same
        sizes.setdefault(width, {})["filters" not in changes[name]] = place
    base = comparison["models"]["base"]
    first = {place: base["variants"][sum(base["seeds"][:place])] for place in range(len(base["settings"]))}
    rows = [(parameters[first[places[True]]], places) for places in sizes.values() if len(places) == 2]
    return sorted(rows, key=lambda row: row[0])


def decision_share(kept: list[float], unkept: list[float], sign: float) -> float:
    """The share of pairs of a seed of each setting whose difference has a sign; one of no difference counts half."""
    products = [(a - b) * sign for a, b in product(kept, unkept)]
    return sum(1.0 if value > 0 else 0.5 if value == 0 else 0.0 for value in products) / len(products)


def measure_rows(comparison: Row) -> list[Row]:
    """A row for each measure: its effect, noise, signal to noise and decisions by size."""
    sizes, rows, text_sign = settings_by_size(comparison), [], 0.0
    for measure in comparison["models"]["base"]["measures"]:
        if measure["name"].startswith(f"{LOWER} "):
            continue  # of one source
        turn = -1.0 if measure["lower_is_better"] else 1.0
        seeds = [
            tuple([turn * value for value in measure["settings"][places[with_filters]]["values"]] for with_filters in (True, False))
            for _, places in sizes
        ]  # fmt: skip
        effects = [statistics.mean(kept) - statistics.mean(unkept) for kept, unkept in seeds]
        noises = [pooled_variance(pair).variance ** 0.5 for pair in seeds]
        text_sign = effects[-1] if measure["name"] == LOWER else text_sign
        rows.append(
            {
                "measure": measure["name"],
                "by_size": [
                    {
                        "parameters": parameters,
                        "with_filters": [round(turn * value, 6) for value in kept],
                        "without": [round(turn * value, 6) for value in unkept],
                        "effect": round(effect, 6),
                        "noise": round(noise, 6),
                        "signal_to_noise": round(abs(effect) / noise, 2) if noise else None,
                        "decisions": round(decision_share(kept, unkept, effects[-1]), 3),
                        "decisions_as_text": round(decision_share(kept, unkept, text_sign), 3),
                    }
                    for (parameters, _), (kept, unkept), effect, noise in zip(
                        sizes, seeds, effects, noises, strict=True
                    )
                ],
            }
        )
    return rows


def table_lines(result: Row) -> list[str]:
    """The table of the docs: signal to noise and `decisions_as_text` of each task's accuracy and right answers, by size."""
    from crawl2llm.stages.report.sweeps import scores
    from crawl2llm.stages.report.sweeps.tables import measure_name

    by_name = {row["measure"]: row["by_size"] for row in result["measures"]}
    sizes = [f"{of['parameters'] / 1e3:,.0f}K" for of in by_name[LOWER]]
    columns = [f"{kind}, {size}" for kind in ("accuracy", "bits per byte") for size in sizes]
    lines = [f"| measure | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]

    def cells(name: str) -> list[str]:
        return [f"{of['signal_to_noise']}, {of['decisions_as_text']:.0%}" for of in by_name.get(name, ())] or [
            "" for _ in sizes
        ]

    for task in ["", *(name.removeprefix(scores.TASK) for name in by_name if name.startswith(scores.TASK))]:
        answers = cells(f"{scores.ANSWERS}{task}") if task else cells(LOWER)
        name = measure_name(f"{scores.TASK}{task}") if task else "held-out text"
        lines.append(f"| {name} | {' | '.join([*cells(f'{scores.TASK}{task}'), *answers])} |")
    return lines


def read_comparison(folder: Path) -> Row:
    """compare.json of what is in the folder of a run."""
    project: Project = compare.read_project([str(folder / "decisions.yaml")])
    before = Path.cwd()
    os.chdir(folder)
    try:
        return variants.read_comparison(project, CompareSettings())[0]
    finally:
        os.chdir(before)


def variant_rows(comparison: Row, model: Row) -> list[Row]:
    """The rows of the variants that count, in the order of the model's."""
    rows = {row["name"]: row for row in comparison["variants"]}
    return [rows[name] for name in model["variants"]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("CRAWL2LLM_DATA", "data")), help="the data's folder"
    )
    parser.add_argument("--folder", type=Path, help="of the run; it stays")
    parser.add_argument(
        "--sizes", type=int, choices=(1, 2, 3), default=3, help="how many sizes, the smallest first (3)"
    )
    parser.add_argument("--read", action="store_true", help="run nothing: the table of what is in --folder")
    parser.add_argument("--table", action="store_true", help="print the table of the JSON, and run nothing")
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    args = parser.parse_args(argv)
    if args.table:
        print("\n".join(table_lines(json.loads(args.out.read_text(encoding="utf-8")))))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.folder or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        used = {} if args.read else measure_variants(args.data.absolute(), folder, args.sizes)
        comparison = read_comparison(folder)
    base = comparison["models"]["base"]
    text_sizes = {row["tokens"] for row in variant_rows(comparison, base)}
    result = {
        "processor": processor(),
        "versions": versions("torch", "transformers", "lm_eval"),
        "cpu_seconds": round(used["cpu"]) if used else None,
        "trained_tokens": STEPS * BATCH_TOKENS,
        "tokens_of_text": sorted(text_sizes),
        "heldout_bytes": base["bytes"],
        "rows_of_public_tasks": ROWS,
        "measures": measure_rows(comparison),
    }
    write_atomically(args.out, pretty_json(result))
    print("\n".join(table_lines(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
