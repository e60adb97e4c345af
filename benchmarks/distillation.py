"""A pruned model of a run's trained on with and without its teacher, on as many tokens: bits per held-out byte, tasks, tokens a second.

    python -m benchmarks.distillation --results results/main                      # writes benchmarks/results/distillation.json
    python -m benchmarks.distillation --results results/main --tokens 100000 --seeds 0 --ways "text alone" "forward, whole"

The run has a model `pruned` of compress.prune made from `base`, which teaches it. Every way is `compress.distil` itself in one process, on
the tokens of the run, from the same weights; then `evaluate.model`, on the run's held-out text and tasks. Figures are medians over the
seeds of the order of the text, with the lowest and highest. "half" is half of the weight on the text's own next token. One after the other;
a way and seed that the JSON has already, of the same run and settings, is not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import processor, run, versions
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.training.processes import malloc_variables

RESULT = ROOT / "benchmarks/results/distillation.json"
STUDENT, TEACHER = "pruned", "base"
TOP = 64
WAYS: dict[str, dict[str, Any]] = {
    "text alone": {"text_share": 1},
    "forward, whole": {},
    "forward, half": {"text_share": 0.5},
    "forward, top 64": {"top_k": TOP},
    "forward, temperature 2": {"temperature": 2},
    "reverse, whole": {"divergence": "reverse"},
}
"""Keys of compress.distil that a way has otherwise than its defaults."""
FACTS = ("bits_per_byte", "tasks", "tokens_per_cpu_second")


class Student:
    """A way and a seed in a folder of its own. results: of the run."""

    def __init__(self, results: Path, folder: Path, settings: dict[str, Any]) -> None:
        self.results, self.folder, self.settings = results, folder, settings
        self.shards = sorted(map(str, (results / "tokenize/encode").glob("*.manifest.json")))
        entry = {"from": STUDENT, "step": "compress.distil", "teacher": TEACHER, **settings}
        pruned = {"from": TEACHER, "step": "compress.prune"}
        config: dict[str, Any] = {"models": {STUDENT: pruned, "student": entry}}
        config["compress"] = {
            "teach": {"top_k": TOP, "tokens": settings["tokens"], "seed": settings["seed"], "threads": 1}
        }
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def manifest(self, step: str, name: str) -> str:
        """The manifest of a step of the run."""
        return str(self.results / step / name)

    def start(self, program: str, *words: str, launched: bool = False) -> dict[str, float]:
        """What a step took."""
        launcher = ["crawl2llm.training.launch", "--processes", "1"] if launched else []
        command = [
            sys.executable, "-m", *launcher, program, "--config", "config.json", "--tokens", *self.shards, *words,
        ]  # fmt: skip
        return run(command, self.folder, PYTHONPATH=str(ROOT / "scripts"), OMP_NUM_THREADS="1", **malloc_variables())[0]

    def train(self) -> dict[str, Any]:
        """The student's facts."""
        base = self.manifest("pretrain/train", "manifest.json")
        taught: list[str] = []
        used = {"cpu": 0.0}
        if self.settings.get("top_k"):
            used = self.start(
                "crawl2llm.stages.compress.teach", "--model", base, "--manifest", "taught/base.manifest.json"
            )
            taught = ["--taught", "taught/base.manifest.json"]
        trained = self.start(
            "crawl2llm.stages.compress.distil", "--model", self.manifest("compress/prune", f"{STUDENT}.manifest.json"), "--teacher",
            base, *taught, "--checkpoint-every", "0", "--manifest", "out/student.manifest.json", launched=True,
        )  # fmt: skip
        tokens = Manifest.of_task(self.folder / "out/student.manifest.json").summary["tokens"]
        return {
            **self.evaluate(self.folder / "out/student.manifest.json", "student"),
            "tokens_per_cpu_second": round(tokens / (trained["cpu"] + used["cpu"])),
        }

    def evaluate(self, model: Path, name: str) -> dict[str, Any]:
        """{bits_per_byte, tasks: the mean accuracy, items: accuracy by task} of a model."""
        self.start(
            "crawl2llm.stages.evaluate.model", "--model", str(model), "--pairs", self.manifest("finetune/pairs", "manifest.json"),
            "--heldout", *self.shards, "--tasks", self.manifest("evaluate/items", "manifest.json"),
            "--manifest", f"evaluated/{name}.manifest.json",
        )  # fmt: skip
        return figures(self.folder / f"evaluated/{name}.manifest.json")


def figures(evaluation: Path) -> dict[str, Any]:
    """{bits_per_byte, tasks: the mean accuracy, items: accuracy by task} of a manifest of evaluate.model."""
    summary = Manifest.of_task(evaluation).summary
    items = {task: round(facts["accuracy"], 4) for task, facts in summary["items"].items()}
    return {
        "bits_per_byte": round(summary["heldout_text"]["bits_per_byte"], 4),
        "tasks": round(sum(items.values()) / len(items), 4),
        "items": items,
    }


def options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="results/main of a run with models base and pruned")
    parser.add_argument("--tokens", type=int, default=307200, help="training tokens of each way (default: 307,200)")
    parser.add_argument("--learning-rate", type=float, default=0.003, help="peak learning rate of all (default: 0.003)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the order (default: 0 1 2)")
    parser.add_argument(
        "--ways", nargs="+", metavar="WAY", choices=WAYS, default=list(WAYS), help=f"of {', '.join(WAYS)}"
    )
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = options(argv)
    results = args.results.resolve()
    mark = {"tokens": args.tokens, "learning_rate": args.learning_rate, "run": fingerprint(results)}
    before = json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}
    known = before if before.get("settings") == mark else {}
    models = known.get("models") or model_facts(results, {"tokens": args.tokens, "seed": 0})
    by_way: dict[str, dict[str, Any]] = known.get("ways", {})
    for seed in args.seeds:
        for way in args.ways:
            seeds = by_way.setdefault(way, {"seeds": {}})["seeds"]
            if str(seed) not in seeds:
                settings = {
                    "tokens": args.tokens,
                    "learning_rate": args.learning_rate,
                    "seed": seed,
                    "threads": 1,
                    **WAYS[way],
                }
                with tempfile.TemporaryDirectory(prefix="distillation-") as folder:
                    seeds[str(seed)] = Student(results, Path(folder), settings).train()
            facts = seeds[str(seed)]
            print(f"seed {seed}, {way}: " + ", ".join(f"{name} {facts[name]}" for name in FACTS), flush=True)
            by_way[way] |= over_seeds(list(seeds.values()))
            content = {
                "machine": processor(),
                "versions": versions("torch", "transformers", "deepspeed"),
                "settings": mark,
                "models": models,
                "ways": by_way,
            }
            args.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(table(content))
    return 0


def over_seeds(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each fact, and what the seeds differ by: {name: median, name_range: [lowest, highest]}."""
    values = {name: [row[name] for row in rows] for name in FACTS}
    return {
        **{name: round(median(each), 4) for name, each in values.items()},
        **{f"{name}_range": [min(each), max(each)] for name, each in values.items()},
    }


def fingerprint(results: Path) -> str:
    """What tells runs apart: the student's fingerprint."""
    return Manifest.of_task(results / f"compress/prune/{STUDENT}.manifest.json").fingerprint


def model_facts(results: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The parameters and figures of teacher and student as the run left them."""
    manifests = {TEACHER: "pretrain/train/manifest.json", STUDENT: f"compress/prune/{STUDENT}.manifest.json"}
    facts = {}
    for name, path in manifests.items():
        with tempfile.TemporaryDirectory(prefix="distillation-") as folder:
            figures_of_model = Student(results, Path(folder), settings).evaluate(results / path, name)
        facts[name] = {"parameters": Manifest.of_task(results / path).summary["parameters"], **figures_of_model}
    return facts


def table(content: dict[str, Any]) -> str:
    """Teacher, student before, and the ways with the lowest and highest of their seeds, as Markdown."""
    rows = [
        ("the teacher", content["models"][TEACHER]),
        ("as pruned", content["models"][STUDENT]),
        *content["ways"].items(),
    ]
    lines = ["| | bits per byte | tasks | tokens per CPU second |", "|---|---|---|---|"]
    for name, facts in rows:
        speed = f"{facts['tokens_per_cpu_second']:,.0f}" if "tokens_per_cpu_second" in facts else ""
        bits, tasks = (
            "–".join(f"{value:{form}}" for value in sorted({*facts.get(f"{fact}_range", [facts[fact]])}))
            for fact, form in (("bits_per_byte", ".3f"), ("tasks", ".1%"))
        )
        lines.append(f"| {name} | {bits} | {tasks} | {speed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
