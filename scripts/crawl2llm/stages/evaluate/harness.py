"""lm-evaluation-harness on local data alone: the project's tasks as multiple choice, and the user's own."""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import checksum
from crawl2llm.stages.evaluate import multiple_choice as asks
from crawl2llm.stages.evaluate.multiple_choice import Task
from crawl2llm.stages.evaluate.truncation import BoundedScorer, LeftOutError, Place

# At once of the project's own tasks, which are short. The file of results has the log-likelihood of every choice, and how many rows a
# product of matrices has moves its last digits: `batch_size` decides no byte.
SEQUENCES = 16
LEFT_OUT, JOINED = "left_out_too_long", "joined"  # counts of a user's own task, see `evaluate_task_files`


def go_offline() -> None:
    """Keep the libraries off the network. To be called before they are imported."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("LMEVAL_LOG_LEVEL", "ERROR")


def language_model(model: Any, tokenizer: Any, context: int, batch_size: int, tasks: Sequence[Task] = ()) -> Any:
    """lm-eval's HFLM around a loaded model, with the project's progress lines in place of its bars.

    tasks: those whose rows have their tokens already; the texts of others it encodes itself.
    """
    from lm_eval.models.huggingface import HFLM

    from crawl2llm.stages.evaluate.answer_scores import score_answers

    pairs = {task.name: task.pairs for task in tasks}

    class LoggingModel(HFLM):
        progress = Progress(None, "sequences")
        requests: Sequence[Any] = ()  # of lm-eval, which are scored at present

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            self.progress, self.requests = Progress(len(requests), "answers scored"), requests
            if not pairs:
                return super().loglikelihood(requests, disable_tqdm=True)
            ready = [(each.args, *pairs[each.task_name][each.doc_id][each.idx]) for each in requests]
            return self._loglikelihood_tokens(ready, disable_tqdm=True)

        def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **options: Any) -> Any:
            return score_answers(self.model, requests, self.max_length, self.batch_size, self.progress.add)

    return LoggingModel(pretrained=model, tokenizer=tokenizer, max_length=context, batch_size=batch_size)


def local_task(task: Task) -> dict[str, Any]:
    """Rows as an lm-eval task: multiple choice."""

    def build_dataset(**_: Any) -> Any:
        from datasets import Dataset

        records = [{"prompt": row["context"], "choices": row["choices"], "gold": row["gold"]} for row in task.rows]
        return {"test": Dataset.from_list(records)}

    return {
        "task": task.name,
        "custom_dataset": build_dataset,
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "target_delimiter": task.delimiter,
        "num_fewshot": 0,
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")
        ],
    }


def task_numbers(result: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one task's result, without filter names, aliases and what is not a number."""
    out = {}
    for key, value in result.items():
        metric, _, strainer = key.partition(",")
        if (
            metric != "sample_len"
            and isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
        ):
            out[metric if strainer in ("", "none") else key] = round(value, 6)
    return out


def against_chance(acc: float, items: int, chance: float) -> float:
    """Standard errors between an accuracy and chance, under the binomial distribution of guessing."""
    return (acc - chance) / math.sqrt(chance * (1 - chance) / items)


def mean_likelihoods(nats: Sequence[Sequence[float]], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Mean log-likelihood of right and of wrong answers, in nats a byte. nats: of each choice of each row."""
    gold: list[float] = []
    wrong: list[float] = []
    for row, row_nats in zip(rows, nats, strict=True):
        for number, (choice, value) in enumerate(zip(row["choices"], row_nats, strict=True)):
            (gold if number == row["gold"] else wrong).append(value / len(choice.encode()))
    means = {"gold_nats_per_byte": sum(gold) / len(gold), "distractor_nats_per_byte": sum(wrong) / len(wrong)}
    return {name: round(value, 6) for name, value in means.items()}


def question_numbers(evaluation: dict[str, Any], task: Task, shared_numbers: dict[str, Any]) -> dict[str, Any]:
    """What lm-eval found on the held-out questions, against chance. shared_numbers: what multiple_choice.task_results has of every task."""
    harness_numbers = task_numbers(evaluation["results"][task.name])
    items = len(task.rows)
    chance = shared_numbers["chance"]
    return {
        **shared_numbers,
        **harness_numbers,
        "acc_z": round(against_chance(harness_numbers["acc"], items, chance), 4),
        "acc_norm_z": round(against_chance(harness_numbers["acc_norm"], items, chance), 4),
        **mean_likelihoods(asks.choice_likelihoods(evaluation["samples"][task.name]), task.rows),
    }


def evaluate_tasks(
    lm: Any, tasks: list[Any], seed: int, rows_by_task: dict[str, list[int]] | None = None
) -> dict[str, Any]:
    """What lm-eval finds on tasks: definitions, or paths of YAML files. rows_by_task: the rows of a task that are put, if not all are."""
    import lm_eval
    from lm_eval import evaluator
    from lm_eval.tasks import TaskManager

    # It lists packages, compilers and GPUs for seconds, which records have.
    evaluator.add_env_info = lambda results: None
    for name in ("lm_eval", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    evaluation: dict[str, Any] = lm_eval.simple_evaluate(
        model=lm,
        tasks=tasks,
        task_manager=TaskManager(include_defaults=False),
        log_samples=True,
        samples=rows_by_task,
        bootstrap_iters=1000,
        random_seed=seed,
        numpy_random_seed=seed,
        torch_random_seed=seed,
        fewshot_random_seed=seed,
    )
    return evaluation


def evaluate_task_files(
    model: Any, tokenizer: Any, paths: list[str], context: int, seed: int, batch_size: int
) -> dict[str, dict[str, Any]]:
    """lm-eval's numbers by task of YAML files, with the number of `items`.

    If rows cannot be scored they are left out, and `left_out_too_long` counts them. `joined` counts rows of which the harness itself would
    leave a choice without a token (see BoundedScorer). Both are there only if there are such rows.
    Raises InputError for a file that lm-eval cannot load from local data or run, and for a task of which no row can be scored.
    """
    lm = language_model(model, tokenizer, context, batch_size)
    bounded = BoundedScorer(lm, strict=True)
    full_paths = [str(Path(path).resolve()) for path in paths]
    left_out: set[Place] = set()
    try:
        try:
            evaluation = evaluate_tasks(lm, full_paths, seed)
        except LeftOutError as error:
            left_out = error.places
            for name, scorable_rows in error.scorable_rows.items():
                if not scorable_rows:
                    raise InputError(
                        f"evaluate.model.tasks: {name}: every one of its {sum(task == name for task, _ in left_out)} items has a choice "
                        f"longer than the context of {context} tokens, or without a token"
                    ) from None
            bounded.clear_records()
            evaluation = evaluate_tasks(lm, full_paths, seed, error.scorable_rows)
    except (OSError, KeyError, ValueError, AssertionError) as error:
        raise InputError(f"evaluate.model.tasks {paths}: lm-eval cannot run them from local data: {error}") from error
    out = {}
    for name, result in sorted(evaluation["results"].items()):
        counts = {
            key: sum(task == name for task, _ in places)
            for key, places in ((LEFT_OUT, left_out), (JOINED, bounded.joined_places))
        }
        out[name] = {
            **task_numbers(result),
            "items": evaluation["n-samples"].get(name, {}).get("effective"),
            **{key: number for key, number in counts.items() if number},
        }
    return out


def task_notes(results: dict[str, dict[str, Any]]) -> list[str]:
    """What is to be said of the user's own tasks. results: of `evaluate_task_files`."""
    out = []
    for name, result in results.items():
        prefix, items = f"evaluate.model.tasks: {name}", result["items"]
        if number := result.get(LEFT_OUT):
            out.append(
                f"{prefix}: {number:,} of {number + items:,} items have a choice longer than the model's context, or without a token, "
                "and are left out."
            )
        if number := result.get(JOINED):
            out.append(
                f"{prefix}: in {number:,} of {items:,} items the tokenizer joins a whole choice to the end of its context; their choices "
                "are scored from the token before it. Set target_delimiter."
            )
    return out


def run_tasks(
    model: Any,
    tokenizer: Any,
    local_tasks: Sequence[Task],
    tasks: list[str],
    context: int,
    seed: int,
    batch_size: int = SEQUENCES,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what lm-eval found on the tasks `local_tasks` that have rows, empty without any; results of `tasks` by name).

    tasks: paths of lm-eval YAML files. context: in tokens. batch_size: of `tasks` alone, see SEQUENCES.
    Raises InputError for a task file that is absent or that lm-eval cannot load from local data.
    """
    go_offline()
    for number, path in enumerate(tasks):
        if not Path(path).is_file() or not path.endswith((".yaml", ".yml")):
            raise InputError(f"evaluate.model.tasks[{number}] is {path!r}; give the path of a task's YAML file")
    nonempty_tasks = [task for task in local_tasks if task.rows]
    evaluation: dict[str, Any] = {}
    file_results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("HF_DATASETS_CACHE", cache)
        if nonempty_tasks:
            log.info(
                "lm-evaluation-harness: %s", ", ".join(f"{len(task.rows):,} of {task.name}" for task in nonempty_tasks)
            )
            lm = language_model(model, tokenizer, context, SEQUENCES, nonempty_tasks)
            evaluation = evaluate_tasks(lm, [local_task(task) for task in nonempty_tasks], seed)
        if tasks:
            log.info("lm-evaluation-harness: %s", ", ".join(tasks))
            file_results = evaluate_task_files(model, tokenizer, tasks, context, seed, batch_size)
    return evaluation, {"results": file_results, "files": {path: checksum(Path(path)) for path in tasks}}
