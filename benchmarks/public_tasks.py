"""Public tasks of a model folder: the workflow's evaluation beside lm-evaluation-harness's command line, on the same rows, item by item.

    python -m benchmarks.public_tasks FOLDER DATA... --tasks arc_easy piqa --rows 20 --out benchmarks/results/public_tasks.json

Seconds are of CPU and of the whole process, its imports and the load of the model included. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import processor, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.manifest import Manifest, canonical_json, pretty_json, write_atomically
from crawl2llm.formats.public_tasks.presets import PRESETS, definitions_folder

Row = dict[str, Any]
TOLERANCE = 1e-3  # nats: what another order of sums may move a log-likelihood in fp32


def stage_rows(data: list[str], tasks: list[str], rows: int, folder: Path) -> None:
    """Write the rows of the tasks as the workflow stages them."""
    from crawl2llm.stages.evaluate import stage

    public = {"threads": 1, "presets": tasks, "data": data, "limit": rows}
    config = settings_of("evaluate.stage", configuration.validate({"evaluate": {"public": public}}))
    given = canonical_json({"step": "evaluate.stage", "config": config})
    if stage.main(["--config", given, "--manifest", str(folder / "manifest.json")]):
        raise SystemExit("the rows could not be staged")


def ask_ours(model_folder: str, precision: str, task: str, staged: Path, out: Path, batch_size: int) -> None:
    """Ask one task as evaluate.public does."""
    from crawl2llm.stages.evaluate import harness, public

    harness.go_offline()
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model, tokenizer = public.load_model(Path(model_folder), precision)
    lm = harness.language_model(model, tokenizer, public.context_of(model.config), batch_size)
    bounded = public.BoundedScorer(lm)
    stage = Manifest.read(staged / "manifest.json")
    outcomes = [
        public.item_outcome(task, *sample, bounded) for sample in public.preset_samples(lm, bounded, task, stage, 0)
    ]
    write_atomically(out, pretty_json([{"id": each.id, "right": each.right, **each.line} for each in outcomes]))


def write_definitions(task: str, staged: Path, folder: Path) -> dict[str, list[str]]:
    """Write the harness's definitions with local rows in place of the hub's; the ids of the rows of each."""
    preset, ids = PRESETS[task], dict[str, list[str]]()
    items, shots = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        for path in (staged / f"{task}.jsonl", staged / f"{task}.shots.jsonl")
    )
    for part in dict.fromkeys(item["part"] for item in items):
        name = f"local_{task}{part and '_'}{part}"
        files = {}
        for split, entries in (("items", items), ("shots", shots)):
            rows = [entry["row"] for entry in entries if entry["part"] == part]
            if rows:
                files[split] = str(folder / f"{name}.{split}.jsonl")
                Path(files[split]).write_text("".join(json.dumps(row) + "\n" for row in rows))
        fields: Row = {
            "include": str(definitions_folder() / preset.definition.format(part)), "task": name, "tag": None, "dataset_path": "json",
            "dataset_name": None, "dataset_kwargs": {"data_files": files}, "training_split": None, "validation_split": None,
            "test_split": "items", "fewshot_split": "shots" if "shots" in files else None, "num_fewshot": preset.shots,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps(fields))
        ids[name] = [item["id"] for item in items if item["part"] == part]
    return ids


def cpu_seconds(command: list[str], threads: int) -> float:
    """Run a command to its end, offline; seconds of CPU of it and its children."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false",
                   "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def harness_items(task: str, ids: dict[str, list[str]], folder: Path) -> dict[str, Row]:
    """What the command line logged of each row, by the row's id."""
    metric, _, strainer = PRESETS[task].headline.partition(",")
    found: dict[str, Row] = {}
    for path in folder.rglob("samples_*.jsonl"):
        name = path.name.removeprefix("samples_").rsplit("_", 1)[0]
        for sample in map(json.loads, path.read_text().splitlines()):
            if sample["filter"] == (strainer or "none"):
                answers = sample["filtered_resps"]
                values = (
                    {"answer": answers[0]}
                    if isinstance(answers[0], str)
                    else {"log_likelihoods": [float(answer[0]) for answer in answers]}
                )
                found[ids[name][sample["doc_id"]]] = {"right": bool(sample[metric]), **values}
    return found


def compare_items(ours: list[Row], theirs: dict[str, Row]) -> Row:
    """How many items are equal: right alike, the same text, log-likelihoods within TOLERANCE."""
    if {row["id"] for row in ours} != set(theirs):
        raise SystemExit("the two did not answer the same rows")
    apart = [
        max(
            abs(one - other)
            for one, other in zip(row["log_likelihoods"], theirs[row["id"]]["log_likelihoods"], strict=True)
        )
        for row in ours
        if "log_likelihoods" in row
    ]
    return {
        "items": len(ours),
        "accuracy": sum(row["right"] for row in ours) / len(ours),
        "right_alike": sum(row["right"] == theirs[row["id"]]["right"] for row in ours),
        "texts_equal": sum(row.get("answer") == theirs[row["id"]].get("answer") for row in ours if "answer" in row),
        "likelihoods_equal": sum(value <= TOLERANCE for value in apart),
        "largest_difference_nats": max(apart, default=None),
    }


def compare_task(args: argparse.Namespace, task: str, folder: Path) -> Row:
    """One task by both, one after the other."""
    staged, definitions, logged = folder / "staged", folder / "definitions", folder / "logged"
    definitions.mkdir(parents=True)
    stage_rows(args.data, [task], args.rows, staged)
    ids = write_definitions(task, staged, definitions)
    ours = [sys.executable, "-m", "benchmarks.public_tasks", args.folder, "--precision", args.precision, "--batch-size",
            str(args.batch_size), "--ask", task, "--staged", str(staged), "--out", str(folder / "ours.json")]  # fmt: skip
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[args.precision]
    theirs = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args", f"pretrained={args.folder},dtype={dtype}", "--tasks",
              ",".join(ids), "--include_path", str(definitions), "--batch_size", str(args.batch_size), "--device", "cpu", "--log_samples",
              "--output_path", str(logged)]  # fmt: skip
    seconds = {"ours": cpu_seconds(ours, args.threads), "lm_eval": cpu_seconds(theirs, args.threads)}
    result = compare_items(json.loads((folder / "ours.json").read_text()), harness_items(task, ids, logged))
    return {**result, "cpu_seconds": seconds, "times_as_fast": seconds["lm_eval"] / seconds["ours"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a model of transformers")
    parser.add_argument("data", nargs="*", help="folders, archives and files of evaluate.public.data")
    parser.add_argument("--tasks", nargs="+", choices=list(PRESETS), default=["arc_easy"])
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    parser.add_argument("--staged", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        ask_ours(args.folder, args.precision, args.ask, args.staged, args.out, args.batch_size)
        return 0
    results: Row = {
        "model": Path(args.folder).name, "rows": args.rows, "precision": args.precision, "threads": args.threads,
        "batch_size": args.batch_size, "processor": processor(), "versions": versions("torch", "transformers", "lm_eval"), "tasks": {},
    }  # fmt: skip
    for task in args.tasks:
        with tempfile.TemporaryDirectory() as folder:
            results["tasks"][task] = compare_task(args, task, Path(folder))
        write_atomically(args.out, pretty_json(results))
        print(task, json.dumps(results["tasks"][task]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
