"""What edits of a finished run start again: seconds, which tasks start, which end at once, and which models are trained.

    python -m benchmarks.edits                          # some 20 minutes; writes benchmarks/results/edits.json
    python -m benchmarks.edits --only threshold data    # edits whose names have one of these words; prints them

The run is that of tests/workflow/tiny.yaml, with models that are fine-tuned, aligned by preferences (DPO, KTO) and by rewards (GRPO), and a
reward model. Each edit is made in a copy of it. Those in NO_DOCUMENT change no document, pair or prompt: they may train nothing. What was
trained is seen by the files of weights, not by what the run says. The clock also counts what others do on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks import machine
from crawl2llm.core.root import ROOT

TINY = ROOT / "tests" / "workflow" / "tiny.yaml"
OUT = ROOT / "benchmarks" / "results" / "edits.json"
PACKAGES = ("snakemake", "torch", "transformers", "deepspeed", "pyarrow")
LINE = re.compile(r"^\d\d:\d\d:\d\d (\w+\.\w+) +(\d+) tasks? +\S+(.*)$", re.MULTILINE)
AS_BEFORE = re.compile(r"(?:([\d,]+) )?as before")
SHORT = {"epochs": 0.5, "max_length": 64, "batch_size": 8, "micro_batch": 4, "threads": 1, "checkpoint_every": 0}
DRAWN = {"generations": 2, "max_new_tokens": 8, "rewards": [{"reward": "length", "most": 9}]}
MODELS: dict[str, dict[str, Any]] = {
    "sft": {"from": "base", "step": "finetune.train"},
    "dpo": {"from": "sft", "step": "align.train", "method": "dpo", **SHORT},
    "kto": {"from": "sft", "step": "align.train", "method": "kto", **SHORT},
    "rm": {"from": "sft", "step": "align.reward", **SHORT},
    "grpo": {"from": "sft", "step": "align.train", "method": "grpo", **SHORT, **DRAWN},
}
Tree = dict[str, Any]


@dataclass
class Run:
    """A copy of the finished run that is edited: its folder and its config."""

    folder: Path
    tree: Tree

    def set(self, key: str, value: Any) -> None:
        """Set a key of the config by its path."""
        *sections, leaf = key.split(".")
        node = self.tree
        for name in sections:
            node = node.setdefault(name, {})
        node[leaf] = value

    def write(self, text: str | None = None) -> None:
        """Write the config, or this text of it."""
        (self.folder / "run.yaml").write_text(text or yaml.safe_dump(self.tree, sort_keys=False), encoding="utf-8")


Edit = Callable[[Run], None]


def set_key(key: str, value: Any) -> Edit:
    """The edit that sets a key."""
    return lambda run: run.set(key, value)


def reversed_keys(tree: Any) -> Any:
    """The same tree with the keys of every mapping the other way round, except the models, whose order is that of the report."""
    if not isinstance(tree, dict):
        return tree
    return {key: tree[key] if key == "models" else reversed_keys(tree[key]) for key in reversed(list(tree))}


def comment(run: Run) -> None:
    run.write("# a comment\n" + yaml.safe_dump(run.tree, sort_keys=False) + "\n# and another\n")


def reorder(run: Run) -> None:
    run.write(yaml.safe_dump(reversed_keys(run.tree), sort_keys=False))


def touch(run: Run) -> None:
    for number, path in enumerate(sorted(run.folder.rglob("*"), reverse=True)):
        os.utime(path, (1_900_000_000 + number, 1_900_000_000 + number), follow_symlinks=False)


def move_data(run: Run) -> None:
    (run.folder / "data").rename(run.folder / "elsewhere")
    run.set("data", "elsewhere")


def replace_by_copies(run: Run) -> None:
    """Files with equal bytes, of other inodes and times, take the places of the inputs."""
    for path in (run.folder / "data").iterdir():
        body = path.read_bytes()
        path.unlink()
        path.write_bytes(body)


def remove(name: str, run: Run) -> None:
    shutil.rmtree(run.folder / name)


def list_of_domains(run: Run) -> None:
    """A block list that names nothing of the crawl."""
    (run.folder / "data/domains.txt").write_text("blocked.example\n", encoding="utf-8")
    run.set("url.score.domains", ["{data}/domains.txt"])


def add_filter(name: str, run: Run) -> None:
    run.set("filters", [*run.tree["filters"], name])


def other_prompts(run: Run) -> None:
    rows("prompts", run.folder / "data/prompts.jsonl", 1)


def other_preferences(run: Run) -> None:
    rows("preference", run.folder / "data/preference.jsonl", 1)


NO_DOCUMENT: dict[str, Edit] = {
    "a comment in the config": comment,
    "the keys of the config in another order": reorder,
    "every file touched": touch,
    "the data moved to another folder": move_data,
    "input files replaced by equal copies": replace_by_copies,
    "the checkpoints removed": partial(remove, "checkpoints"),
    "Snakemake's own records removed": partial(remove, ".snakemake"),
    "the logs removed": partial(remove, "logs"),
    "log_every of the pre-training": set_key("pretrain.train.log_every", 20),
    "checkpoint_every of the pre-training": set_key("pretrain.train.checkpoint_every", 20),
    "TensorBoard switched on": set_key("pretrain.train.tensorboard", True),
    "the name of the project in W&B": set_key("pretrain.train.wandb_project", "another"),
    "more workers of the crawl": set_key("crawl.render.workers", 3),
    "batch_size of an evaluation": set_key("evaluate.model.batch_size", 8),
    "a threshold of language.select that drops the same documents": set_key("language.select.threshold", 0.39),
    "a threshold of heuristics.select that drops the same documents": set_key(
        "heuristics.select.gopher_quality.bullet_lines_max", 0.91
    ),
    "a threshold of heuristics.select that drops nothing": set_key("heuristics.select.gopher_quality.words_max", 99999),
    "a threshold of dedup.select that drops the same documents": set_key("dedup.select.threshold", 0.81),
    "keep_fraction of quality.select that keeps the same documents": set_key("quality.select.keep_fraction", 0.9001),
    "a threshold of url.select that drops nothing": set_key("url.select.words_max", 1),
    "a block list that names nothing of the crawl": list_of_domains,
    "a threshold of lines.select that drops nothing": set_key("lines.select.flagged_max", 0.99),
    "a threshold of boilerplate.frequent that finds nothing": set_key("boilerplate.frequent.documents_min", 2000),
    "a threshold of boilerplate.select that drops nothing": set_key("boilerplate.select.removed_max", 0.99),
    "a threshold of paragraphs.select that drops nothing": set_key("paragraphs.select.words_min", 1),
    "a threshold of substrings.select that drops nothing": set_key("substrings.select.removed_max", 0.99),
    "substrings.sample.words that finds nothing": set_key("substrings.sample.words", 1001),
    "a filter switched on that drops nothing": partial(add_filter, "sourcecode"),
    "a limit of ingest.extract that no page reaches": set_key("ingest.extract.max_body_bytes", 20_000_001),
    "a limit of crawl.render that no page reaches": set_key("crawl.render.max_page_kilobytes", 2001),
    "similarity of corpus.split that finds the same": set_key("corpus.split.similarity", 0.51),
    "train_bytes of the tokenizer above what there is": set_key("tokenize.train.train_bytes", 600_000),
    "max_train of finetune.pairs above what there is": set_key("finetune.pairs.max_train", 65),
    "max_train of align.pairs above what there is": set_key("align.pairs.max_train", 20_001),
    "confidence of the comparison of models": set_key("evaluate.compare.confidence", 0.9),
    "samples of the report": set_key("report.render.samples", 2),
}
TRAINING: dict[str, Edit] = {
    "another file of prompts": other_prompts,
    "another file of preferences": other_preferences,
    "validate_every of the pre-training": set_key("pretrain.train.validate_every", 10),
    "a threshold that moves documents": set_key("language.select.threshold", 0.6),
}


def rows(layout: str, path: Path, version: int = 0) -> None:
    """Write a file of 40 rows of a layout; another version has another last row."""
    some = []
    for number in range(40):
        asked = f"What is {number} and {version if number == 39 else 0}?"
        if layout == "preference":
            row = {"prompt": asked, "chosen": f"It is {number}.", "rejected": "No idea at all."}
        elif layout == "labels":
            row = {"prompt": asked, "completion": f"It is {number}.", "label": number % 2 == 0}
        else:
            row = {"prompt": f"{asked} Say it."}
        some.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")


def config() -> Tree:
    """The config of the run."""
    tree: Tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    files = [{"path": f"{{data}}/{name}.jsonl", "layout": name} for name in ("preference", "labels", "prompts")]
    return {**tree, "data": "data", "models": MODELS, "align": {"pairs": {"files": files}}}


def start(folder: Path) -> tuple[dict[str, float], str]:
    """(measures, output) of a run in a folder, as `crawl2llm` starts it on this machine."""
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles/local"),
        "--directory", str(folder), "--configfile", str(folder / "run.yaml"), "--cores", "2",
    ]  # fmt: skip
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return machine.run(command, ROOT, PATH=path, WANDB_MODE="disabled")


def make_complete_run(folder: Path) -> float:
    """Make the run that is edited, unless it is there; the seconds that it took."""
    seconds = folder / "seconds"
    if seconds.exists():
        return float(seconds.read_text())
    (folder / "data").mkdir(parents=True)
    for layout in ("preference", "labels", "prompts"):
        rows(layout, folder / f"data/{layout}.jsonl")
    Run(folder, config()).write()
    seconds.write_text(f"{start(folder)[0]['clock']:.1f}")
    return float(seconds.read_text())


def weights(folder: Path) -> dict[str, tuple[int, int]]:
    """(inode, time) of the weights of each model of a run."""
    found = {}
    for path in sorted((folder / "results/main").glob("*/*/**/model.safetensors")):
        parts = path.relative_to(folder / "results/main").parts
        found[parts[2] if parts[2] != "model" else "base"] = path.stat().st_ino, path.stat().st_mtime_ns
    return found


def tasks(output: str) -> tuple[dict[str, int], int]:
    """(tasks that were started, by step; tasks that ended at once) of what a run printed."""
    started, ended = dict[str, int](), 0
    for step, number, rest in LINE.findall(output):
        of_step, same = int(number), AS_BEFORE.search(rest)
        as_before = 0
        if same:
            as_before = int(same[1].replace(",", "")) if same[1] else of_step
        ended += as_before
        if of_step > as_before:
            started[step] = of_step - as_before
    return started, ended


def run_after_edit(name: str, edit: Edit, complete: Path, folder: Path) -> dict[str, Any]:
    """What a run does after an edit of a copy of the complete run."""
    shutil.copytree(complete, folder, symlinks=True)
    run = Run(folder, config())
    run.write()
    edit(run)
    if edit not in (comment, reorder):
        run.write()
    before = weights(folder)
    used, output = start(folder)
    after = weights(folder)
    started, ended = tasks(output)
    trained = sorted(model for model, mark in after.items() if before.get(model) != mark)
    shutil.rmtree(folder)
    times = {"seconds": round(used["clock"], 1), "cpu_seconds": round(used["cpu"], 1)}
    return {"edit": name, **times, "started": started, "ended_at_once": ended, "trained": trained}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words of names; then nothing is written")
    parser.add_argument(
        "--complete", type=Path, help="a folder for the finished run, which stays there for the next time"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    found: list[dict[str, Any]] = []
    facts = {"cores": os.cpu_count(), "processor": machine.processor(), "versions": machine.versions(*PACKAGES)}
    with tempfile.TemporaryDirectory(prefix="crawl2llm-edits-") as name:
        complete = args.complete or Path(name, "complete")
        whole = make_complete_run(complete)
        print(f"the whole run: {whole} s", flush=True)
        for number, (words, edit) in enumerate((NO_DOCUMENT | TRAINING).items()):
            if args.only and not any(word in words for word in args.only):
                continue
            row = run_after_edit(words, edit, complete, Path(name, f"edit-{number}"))
            found.append(row)
            if not args.only:  # so far: an edit that trains may take minutes
                result = {**facts, "whole_run_seconds": whole, "edits": found}
                args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(json.dumps(row, ensure_ascii=False), flush=True)
    wrong = [row["edit"] for row in found if row["edit"] in NO_DOCUMENT and row["trained"]]
    for words in wrong:
        print(f"trained although no document changed: {words}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
