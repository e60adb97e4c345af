"""lm-evaluation-harness on local data alone: the held-out questions as multiple choice, and the user's own tasks."""

from __future__ import annotations

import logging
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from scripts.finetune.template import Template
from scripts.workflow.console import Progress, log
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import checksum

NAME = "heldout_questions"


def offline() -> None:
    """Keep the libraries off the network and their bars off the terminal. To be called before they are imported."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["TQDM_DISABLE"] = "1"
    os.environ.setdefault("LMEVAL_LOG_LEVEL", "ERROR")


def language_model(model: Any, tokenizer: Any, context: int, batch_size: int) -> Any:
    """lm-eval's HFLM around a loaded model, with the project's progress lines in place of its bars."""
    from lm_eval.models.huggingface import HFLM

    class Logged(HFLM):
        progress = Progress(None, "sequences")

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            self.progress = Progress(len(requests), "answers scored")
            return super().loglikelihood(requests, disable_tqdm=True)

        def _model_call(self, inps: Any, *args: Any, **options: Any) -> Any:
            self.progress.add(len(inps))
            return super()._model_call(inps, *args, **options)

    return Logged(pretrained=model, tokenizer=tokenizer, max_length=context, batch_size=batch_size)


def question_task(rows: list[dict[str, Any]], template: Template) -> dict[str, Any]:
    """The held-out questions as an lm-eval task: multiple choice, asked as in fine-tuning."""

    def dataset(**_: Any) -> Any:
        from datasets import Dataset

        asked = [
            {"prompt": template.prompt(row["question"]), "choices": row["choices"], "gold": row["gold"]} for row in rows
        ]
        return {"test": Dataset.from_list(asked)}

    return {
        "task": NAME,
        "custom_dataset": dataset,
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "target_delimiter": template.delimiter,
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


def likelihoods(samples: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Mean log-likelihood of right and of wrong answers, in nats a byte, from lm-eval's samples of the questions."""
    gold: list[float] = []
    wrong: list[float] = []
    for sample in samples:
        row = rows[sample["doc_id"]]
        for number, (choice, answer) in enumerate(zip(row["choices"], sample["filtered_resps"], strict=True)):
            (gold if number == row["gold"] else wrong).append(float(answer[0]) / len(choice.encode()))
    means = {"gold_nats_per_byte": sum(gold) / len(gold), "distractor_nats_per_byte": sum(wrong) / len(wrong)}
    return {name: round(value, 6) for name, value in means.items()}


def measured(found: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What lm-eval found on the held-out questions, against chance."""
    own, items, chance = numbers(found["results"][NAME]), len(rows), 1 / len(rows[0]["choices"])
    return own | {
        "items": items,
        "chance": chance,
        "acc_z": round(against_chance(own["acc"], items, chance), 4),
        "acc_norm_z": round(against_chance(own["acc_norm"], items, chance), 4),
        **likelihoods(found["samples"][NAME], rows),
    }


def run(
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    template: Template,
    tasks: list[str],
    settings: dict[str, Any],
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """(results on the held-out questions, None without `rows`; results of `tasks` by name).

    tasks: paths of lm-eval YAML files. settings: `context`, `batch_size`, `seed`.
    Raises InputError for a task file that is absent or that lm-eval cannot load from local data.
    """
    offline()
    for number, path in enumerate(tasks):
        if not Path(path).is_file() or not path.endswith((".yaml", ".yml")):
            raise InputError(f"evaluate.model.tasks[{number}] is {path!r}; give the path of a task's YAML file")
    if not rows and not tasks:
        return None, {"results": {}, "files": {}}
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("HF_DATASETS_CACHE", cache)
        import lm_eval
        from lm_eval.tasks import TaskManager

        for name in ("lm_eval", "datasets"):
            logging.getLogger(name).setLevel(logging.ERROR)
        log.info("lm-evaluation-harness: %s questions, %s more tasks", f"{len(rows):,}", len(tasks))
        try:
            found = lm_eval.simple_evaluate(
                model=language_model(model, tokenizer, settings["context"], settings["batch_size"]),
                tasks=[question_task(rows, template)] * bool(rows) + [str(Path(path).resolve()) for path in tasks],
                task_manager=TaskManager(include_defaults=False),
                log_samples=True,
                bootstrap_iters=1000,
                random_seed=settings["seed"],
                numpy_random_seed=settings["seed"],
                torch_random_seed=settings["seed"],
                fewshot_random_seed=settings["seed"],
            )
        except (OSError, KeyError, ValueError) as error:
            raise InputError(
                f"evaluate.model.tasks {tasks}: lm-eval cannot run them from local data: {error}"
            ) from error
    others = {
        name: {**numbers(result), "items": found["n-samples"].get(name, {}).get("effective")}
        for name, result in sorted(found["results"].items())
        if name != NAME
    }
    files = {path: checksum(Path(path)) for path in tasks}
    return measured(found, rows) if rows else None, {"results": others, "files": files}
