"""Public tasks of a model folder: the workflow's evaluation beside lm-evaluation-harness's command line, on the same rows, item by item.

    python -m benchmarks.public_tasks FOLDER DATA... --tasks arc_easy piqa --rows 20 --out benchmarks/results/public_tasks.json

Seconds are of CPU: `answers` of the calls that get a model's answers, and `whole` with the process's start (see Stopwatch). Tasks that are
named together are asked by one process of each side.

Programs that a model writes run in sandboxes: ours in the workflow's own, the whole command line in one without network, with the metric
`code_eval`, which it takes from the hub: --code-eval FOLDER, a copy of `metrics/code_eval` of the package evaluate. It downloads nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import processor, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.manifest import Manifest, canonical_json, pretty_json, write_atomically
from crawl2llm.formats.public_tasks.presets import PRESETS, code_presets, definitions_folder
from crawl2llm.stages.evaluate import code_answers

Row = dict[str, Any]
WRONG_ANSWERS = ("    return None\n", "    return [0]\n")
TOLERANCE = 1e-3  # nats: what another order of sums may move a log-likelihood in fp32


def stage_rows(data: list[str], tasks: list[str], rows: int, folder: Path) -> None:
    """Write the rows of the tasks as the workflow stages them."""
    from crawl2llm.stages.evaluate import stage

    public = {"threads": 1, "presets": tasks, "data": data, "limit": rows}
    config = settings_of("evaluate.stage", configuration.validate({"evaluate": {"public": public}}))
    given = canonical_json({"step": "evaluate.stage", "config": config})
    if stage.main(["--config", given, "--manifest", str(folder / "manifest.json")]):
        raise SystemExit("the rows could not be staged")


def used_seconds() -> float:
    """CPU seconds of this process so far, and of those that it started and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Stopwatch:
    """Seconds of CPU of the methods by which lm-eval gets a model's answers, task after task, and of a process's start.

    The start is what the first task took besides its answers: imports, the load of the model, what is read and written.
    """

    def __init__(self) -> None:
        self.start: float | None = None
        self.answers = 0.0

    def watch(self, owner: Any) -> None:
        """Count what these methods take, of a model or its class."""
        for name in ("loglikelihood", "generate_until"):
            setattr(owner, name, self._count_seconds(getattr(owner, name)))

    def _count_seconds(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            begin = time.process_time()
            try:
                return inner(*args, **options)
            finally:
                self.answers += time.process_time() - begin

        return call

    def seconds(self) -> dict[str, float]:
        """Of the task that ends now: `answers`, and `whole`, which has the start, too."""
        answers, self.answers = self.answers, 0.0
        if self.start is None:
            self.start = used_seconds() - answers
        return {"whole": self.start + answers, "answers": answers}


def ask_ours(model_folder: str, precision: str, tasks: list[str], folder: Path, batch_size: int) -> None:
    """Ask tasks, one after the other, as evaluate.public does, of the rows that are staged below folder."""
    from crawl2llm.stages.evaluate import harness, public

    harness.go_offline()
    import torch

    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    stopwatch = Stopwatch()
    for task in tasks:
        model, tokenizer = public.load_model(Path(model_folder), precision)
        lm = harness.language_model(model, tokenizer, public.context_of(model.config), batch_size)
        bounded = public.BoundedScorer(lm)
        stopwatch.watch(lm)
        staged = Manifest.read(folder / task / "staged/manifest.json")
        samples = list(public.preset_samples(lm, bounded, task, staged, 0))
        outcomes = public.judge_samples(task, samples, bounded, threads)
        texts = [written_text(sample) for *_, sample in samples]
        rows = [
            {"id": each.id, "right": each.right, **each.line, **text}
            for each, text in zip(outcomes, texts, strict=True)
        ]
        answered = {"rows": rows, "seconds": stopwatch.seconds()}
        write_atomically(folder / task / "ours.json", pretty_json(answered))


def ask_harness(arguments: dict[str, list[str]], folder: Path) -> None:
    """Call lm-evaluation-harness's command line for one task after another, with a stopwatch at its model. arguments: by task."""
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.models.huggingface import HFLM

    stopwatch = Stopwatch()
    stopwatch.watch(HFLM)
    for task, options in arguments.items():
        sys.argv = ["lm_eval", *options]
        cli_evaluate()
        write_atomically(folder / task / "theirs.json", pretty_json(stopwatch.seconds()))


def written_text(sample: Row) -> Row:
    """What the model wrote in a sample of lm-eval, as it was before a filter read an answer in it; nothing where choices are scored."""
    response = sample["resps"][0][0]
    return {"text": response} if isinstance(response, str) else {}


def write_definitions(task: str, staged: Path, folder: Path) -> dict[str, list[str]]:
    """Write the harness's definitions with local rows in place of the hub's; the ids of the rows of each."""
    preset, ids = PRESETS[task], dict[str, list[str]]()
    items, shots = (
        [json.loads(line) for line in path.read_text().strip().split("\n")] if path.is_file() else []
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
            "test_split": "items", "fewshot_split": "shots" if "shots" in files else "items", "num_fewshot": preset.shots,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps(fields))
        ids[name] = [item["id"] for item in items if item["part"] == part]
    return ids


def run_offline(command: list[str], threads: int, folder: Path) -> None:
    """Run a command to its end, without a network for its libraries. folder: where these may write."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false",
                   "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
                   "HF_HOME": str(folder), "TMPDIR": str(folder), "HF_ALLOW_CODE_EVAL": "1",
                   "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"}  # fmt: skip
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")


def harness_items(task: str, ids: dict[str, list[str]], folder: Path) -> dict[str, Row]:
    """What the command line logged of each row, by the row's id."""
    metric, _, strainer = PRESETS[task].headline.partition(",")
    strainer = "create_test" if PRESETS[task].runs_code else strainer or "none"
    items: dict[str, Row] = {}
    for path in folder.rglob("samples_*.jsonl"):
        name = path.name.removeprefix("samples_").rsplit("_", 1)[0]
        for sample in map(json.loads, path.read_text().strip().split("\n")):
            if sample["filter"] == strainer:
                text = written_text(sample)
                nats = [] if text else [float(answer[0]) for answer in sample["filtered_resps"]]
                line = text or {"log_likelihoods": nats}
                items[ids[name][sample["doc_id"]]] = {"right": bool(sample[metric]), **line}
    return items


def compare_items(ours: list[Row], theirs: dict[str, Row]) -> Row:
    """How many items are equal: right alike, the same text written, log-likelihoods within TOLERANCE."""
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
    texts = [row for row in ours if "text" in row]
    return {
        "items": len(ours),
        "accuracy": sum(row["right"] for row in ours) / len(ours),
        "right_alike": sum(row["right"] == theirs[row["id"]]["right"] for row in ours),
        **(
            {"likelihoods_equal": sum(value <= TOLERANCE for value in apart), "largest_difference_nats": max(apart)}
            if apart
            else {}
        ),
        **({"texts_equal": sum(row["text"] == theirs[row["id"]]["text"] for row in texts)} if texts else {}),
    }


def harness_arguments(args: argparse.Namespace, task: str, names: Iterable[str], folder: Path) -> list[str]:
    """The options of the harness's command line for a task. names: those of its definitions. folder: the task's."""
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[args.precision]
    unsafe = ["--confirm_run_unsafe_code"] if PRESETS[task].runs_code else []
    # The seed draws examples, which are the same then.
    return ["run", "--model", "hf", "--model_args", f"pretrained={args.folder},dtype={dtype}", "--tasks", ",".join(names), "--seed", "0",
            "--include_path", str(folder / "definitions"), "--batch_size", str(args.batch_size), "--device", "cpu", "--log_samples",
            "--output_path", str(folder / "logged"), *unsafe]  # fmt: skip


def without_network(command: list[str], folder: Path) -> list[str]:
    """A command that runs programs of a model, in a sandbox where it may write to folder alone."""
    places = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(folder), str(folder)]
    return ["bwrap", "--unshare-all", "--die-with-parent", *places, "--chdir", str(folder), *command]


def ask_code_eval(folder: Path) -> None:
    """The verdicts of code_eval's check_correctness, 3 seconds each as in code_eval, on the programs in folder."""
    sys.path.insert(0, str(folder / "code_eval"))
    check = importlib.import_module("execute").check_correctness
    programs = json.loads((folder / "programs.json").read_text())
    verdicts = [check(program, 3.0, str(number), 0)["passed"] for number, program in enumerate(programs)]
    write_atomically(folder / "verdicts.json", pretty_json(verdicts))


def compare_verdicts(args: argparse.Namespace, folder: Path) -> Row:
    """Our verdicts beside code_eval's, on each solution of HumanEval, and on two wrong answers to each question."""
    stage_rows(args.data, ["humaneval"], 1000, folder / "staged")
    rows = [json.loads(line)["row"] for line in (folder / "staged/humaneval.jsonl").read_text().strip().split("\n")]
    answers = [(row, answer) for row in rows for answer in (row["canonical_solution"], *WRONG_ANSWERS)]
    items = [(row, code_answers.program_of(row, answer, False)) for row, answer in answers]
    ours = [verdict["right"] for verdict in code_answers.judge_programs("humaneval", items, args.threads)]
    tests = [f"{program}\n{row['test']}\ncheck({row['entry_point']})" for row, program in items]
    write_atomically(folder / "programs.json", pretty_json(tests))
    shutil.copytree(args.code_eval, folder / "code_eval")
    here = [sys.executable, "-m", "benchmarks.public_tasks", args.folder, "--out", str(folder), "--check-programs"]
    run_offline(without_network(here, folder), args.threads, folder)
    theirs = json.loads((folder / "verdicts.json").read_text())
    alike = sum(own == other for own, other in zip(ours, theirs, strict=True))
    return {"programs": len(items), "right": sum(ours), "alike": alike}


def compare_tasks(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Row]]:
    """(task, its comparison): all by ours first, in one process, then all by the harness in another."""
    ids = {}
    for task in args.tasks:
        (folder / task / "definitions").mkdir(parents=True)
        stage_rows(args.data, [task], args.rows, folder / task / "staged")
        ids[task] = write_definitions(task, folder / task / "staged", folder / task / "definitions")
    options = {task: harness_arguments(args, task, names, folder / task) for task, names in ids.items()}
    here = [sys.executable, "-m", "benchmarks.public_tasks", args.folder, "--out", str(folder)]
    ours = [*here, "--ask", "--tasks", *args.tasks, "--precision", args.precision, "--batch-size", str(args.batch_size)]
    theirs = [*here, "--harness", json.dumps(options)]
    if code_presets(args.tasks):
        shutil.copytree(args.code_eval, folder / "code_eval")  # taken for the hub's, as it is in the working directory
        theirs = without_network(theirs, folder)
    run_offline(ours, args.threads, folder)
    run_offline(theirs, args.threads, folder)
    for task, names in ids.items():
        answered = json.loads((folder / task / "ours.json").read_text())
        seconds = {"ours": answered["seconds"], "lm_eval": json.loads((folder / task / "theirs.json").read_text())}
        yield (
            task,
            {
                "rows": args.rows,
                **compare_items(answered["rows"], harness_items(task, names, folder / task / "logged")),
                "cpu_seconds": seconds,
                "times_as_fast": {
                    part: seconds["lm_eval"][part] / seconds["ours"][part] for part in ("whole", "answers")
                },
            },
        )


def earlier_results(out: Path, asked: Row) -> Row:
    """What stays of a file that is there: other tasks, verdicts, what the model's card says. Ends the program for other settings."""
    before: Row = json.loads(out.read_text()) if out.exists() else {}
    for key in ("precision", "batch_size"):
        if before and before[key] != asked[key]:
            raise SystemExit(f"{out} has results with {key} {before[key]}, not {asked[key]}: give another --out")
    return {key: before[key] for key in ("tasks", "verdicts", "published") if key in before}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a model of transformers")
    parser.add_argument("data", nargs="*", help="folders, archives and files of evaluate.public.data")
    parser.add_argument("--tasks", nargs="+", choices=list(PRESETS), default=["arc_easy"])
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--code-eval", type=Path, help="a copy of metrics/code_eval of Hugging Face's evaluate, for HumanEval"
    )
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--verdicts", action="store_true", help="compare verdicts on programs, and ask no task")
    parser.add_argument("--check-programs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--harness", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.ask:
        ask_ours(args.folder, args.precision, args.tasks, args.out, args.batch_size)
        return 0
    if args.harness:
        ask_harness(args.harness, args.out)
        return 0
    if args.check_programs:
        ask_code_eval(args.out)
        return 0
    if (args.verdicts or code_presets(args.tasks)) and not args.code_eval:
        parser.error("HumanEval needs --code-eval")
    results: Row = {
        "model": Path(args.folder).name, "precision": args.precision, "threads": args.threads, "batch_size": args.batch_size,
        "processor": processor(), "versions": versions("torch", "transformers", "lm_eval"), "tasks": {},
    }  # fmt: skip
    results |= earlier_results(args.out, results)
    with tempfile.TemporaryDirectory() as folder:
        if args.verdicts:
            results["verdicts"] = compare_verdicts(args, Path(folder))
            args.tasks = []
        for task, comparison in compare_tasks(args, Path(folder)) if args.tasks else ():
            results["tasks"][task] = comparison
            print(task, json.dumps(comparison), flush=True)
    write_atomically(args.out, pretty_json(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
