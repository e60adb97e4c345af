"""lm-evaluation-harness on local data alone: the project's tasks as multiple choice, and the user's own."""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.evaluate import asked as asks
from scripts.evaluate.asked import Pairs, Task
from scripts.workflow.console import Progress, log
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import checksum

# At once of the project's own tasks, which are short. The file of results has the log-likelihood of every choice, and how many rows a
# product of matrices has moves its last digits: `batch_size` decides no byte.
SEQUENCES = 16


def offline() -> None:
    """Keep the libraries off the network. To be called before they are imported."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("LMEVAL_LOG_LEVEL", "ERROR")


def language_model(model: Any, tokenizer: Any, context: int, batch_size: int, pairs: Pairs) -> Any:
    """lm-eval's HFLM around a loaded model, with the project's progress lines in place of its bars.

    pairs: the tokens of (context, choice) where these are known; other texts it encodes itself.
    """
    from lm_eval.models.huggingface import HFLM

    class Logged(HFLM):
        progress = Progress(None, "sequences")

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            self.progress = Progress(len(requests), "answers scored")
            return super().loglikelihood(requests, disable_tqdm=True)

        def _encode_pair(self, context: str, continuation: str) -> Any:
            return pairs.get((context, continuation)) or super()._encode_pair(context, continuation)

        def _model_call(self, inps: Any, *args: Any, **options: Any) -> Any:
            self.progress.add(len(inps))
            return super()._model_call(inps, *args, **options)

    return Logged(pretrained=model, tokenizer=tokenizer, max_length=context, batch_size=batch_size)


def local_task(task: Task) -> dict[str, Any]:
    """Rows as an lm-eval task: multiple choice."""

    def dataset(**_: Any) -> Any:
        from datasets import Dataset

        asked = [{"prompt": row["context"], "choices": row["choices"], "gold": row["gold"]} for row in task.rows]
        return {"test": Dataset.from_list(asked)}

    return {
        "task": task.name,
        "custom_dataset": dataset,
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


def numbers(result: dict[str, Any]) -> dict[str, Any]:
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


def likelihoods(nats: Sequence[Sequence[float]], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Mean log-likelihood of right and of wrong answers, in nats a byte. nats: of each choice of each row."""
    gold: list[float] = []
    wrong: list[float] = []
    for row, found in zip(rows, nats, strict=True):
        for number, (choice, value) in enumerate(zip(row["choices"], found, strict=True)):
            (gold if number == row["gold"] else wrong).append(value / len(choice.encode()))
    means = {"gold_nats_per_byte": sum(gold) / len(gold), "distractor_nats_per_byte": sum(wrong) / len(wrong)}
    return {name: round(value, 6) for name, value in means.items()}


def questions(found: dict[str, Any], asked: Task, measured: dict[str, Any]) -> dict[str, Any]:
    """What lm-eval found on the held-out questions, against chance. measured: the numbers that every task has, of asked.results."""
    own, items, chance = numbers(found["results"][asked.name]), len(asked.rows), measured["chance"]
    return {
        **measured,
        **own,
        "acc_z": round(against_chance(own["acc"], items, chance), 4),
        "acc_norm_z": round(against_chance(own["acc_norm"], items, chance), 4),
        **likelihoods(asks.likelihoods(found["samples"][asked.name]), asked.rows),
    }


def evaluated(lm: Any, tasks: list[Any], seed: int) -> dict[str, Any]:
    """What lm-eval finds on tasks: definitions, or paths of YAML files."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    for name in ("lm_eval", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    found: dict[str, Any] = lm_eval.simple_evaluate(
        model=lm,
        tasks=tasks,
        task_manager=TaskManager(include_defaults=False),
        log_samples=True,
        bootstrap_iters=1000,
        random_seed=seed,
        numpy_random_seed=seed,
        torch_random_seed=seed,
        fewshot_random_seed=seed,
    )
    return found


def run(
    model: Any, tokenizer: Any, asked: Sequence[Task], tasks: list[str], settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what lm-eval found on the tasks `asked` that have rows, empty without any; results of `tasks` by name).

    tasks: paths of lm-eval YAML files. settings: `context`, `batch_size` (of `tasks` alone, see SEQUENCES), `seed`.
    Raises InputError for a task file that is absent or that lm-eval cannot load from local data.
    """
    offline()
    for number, path in enumerate(tasks):
        if not Path(path).is_file() or not path.endswith((".yaml", ".yml")):
            raise InputError(f"evaluate.model.tasks[{number}] is {path!r}; give the path of a task's YAML file")
    own = [task for task in asked if task.rows]
    pairs = {key: ids for task in own for key, ids in task.pairs.items()}
    found: dict[str, Any] = {}
    others: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("HF_DATASETS_CACHE", cache)
        if own:
            log.info("lm-evaluation-harness: %s", ", ".join(f"{len(task.rows):,} of {task.name}" for task in own))
            lm = language_model(model, tokenizer, settings["context"], SEQUENCES, pairs)
            found = evaluated(lm, [local_task(task) for task in own], settings["seed"])
        if tasks:
            log.info("lm-evaluation-harness: %s", ", ".join(tasks))
            lm = language_model(model, tokenizer, settings["context"], settings["batch_size"], {})
            try:
                given = evaluated(lm, [str(Path(path).resolve()) for path in tasks], settings["seed"])
            except (OSError, KeyError, ValueError) as error:
                raise InputError(
                    f"evaluate.model.tasks {tasks}: lm-eval cannot run them from local data: {error}"
                ) from error
            for name, result in sorted(given["results"].items()):
                others[name] = {**numbers(result), "items": given["n-samples"].get(name, {}).get("effective")}
    return found, {"results": others, "files": {path: checksum(Path(path)) for path in tasks}}
