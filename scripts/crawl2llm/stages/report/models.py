"""Which models a run has, in what order, and what the page calls them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crawl2llm.chain.model_registry import BASE, BASE_STEP, MAKERS, PUBLISHED_STEP
from crawl2llm.formats.run_records import Run, finite_number, nested_value

# Of each step that makes models: the heading of a training, and what its loss is the mean of.
HEADINGS = {
    BASE_STEP: "Pre-training",
    PUBLISHED_STEP: "Published model",
    "finetune.train": "Fine-tuning",
    "align.reward": "Reward model",
    "align.train": "Alignment",
    "compress.prune": "Pruning",
    "compress.distil": "Distillation",
    "compress.merge": "Merging",
    "compress.quantize": "Quantization",
}
LOSSES = {
    BASE_STEP: "Mean cross-entropy a token, on training batches and on validation documents.",
    "finetune.train": "Mean cross-entropy an answer token, on training batches.",
    "align.reward": "Mean loss of the pairs, on training batches.",
    "align.train": "Mean loss of the method, on training batches.",
    "compress.prune": "Mean cross-entropy a token, on training batches.",
    "compress.distil": "Mean loss a token, of the divergence from the teacher and the text's cross-entropy, on training batches.",
}


@dataclass(frozen=True)
class Model:
    """One model: its name, the model that it is made from (None: from random weights), and the step that makes it."""

    name: str
    parent: str | None
    step: str

    @property
    def task(self) -> str:
        """The task of its step; "" of a step with one task."""
        return "" if self.name == BASE else self.name

    @property
    def title(self) -> str:
        """What a table calls it."""
        return model_title(self.name)

    @property
    def anchor(self) -> str:
        """The section of its training, and the beginning of the names of that section's figures."""
        return f"model-{self.name}"

    @property
    def heading(self) -> str:
        """The heading of that section: `Pre-training`, `Fine-tuning: sft`."""
        return HEADINGS.get(self.step, self.step) + (f": {self.name}" if self.task else "")


def model_title(name: str) -> str:
    """`Base model`, or a model's own name."""
    return "Base model" if name == BASE else name


def words_of_model(name: str) -> str:
    """What a sentence calls it: `base model`, or a model's own name."""
    return "base model" if name == BASE else name


def models_of_run(run: Run, listed: Iterable[dict[str, Any]] | None = None) -> list[Model]:
    """The models of a run; without `listed` those that left a result or are in training, each after the one that it is made from.

    listed: the registry as {name, from, step}, whose order is kept.
    """
    if listed is not None:
        return [Model(entry["name"], entry["from"], entry["step"]) for entry in listed]
    placed = [Model(BASE, None, BASE_STEP)]
    step_tasks = [(step, task) for step in MAKERS for task in run.tasks(step)] + list(run.training)
    remaining = [Model(task, parent_of(run, step, task), step) for step, task in step_tasks if task]
    while remaining:
        unplaced = {model.name for model in remaining}
        ready = [model for model in remaining if model.parent not in unplaced] or remaining
        placed, remaining = placed + ready, [model for model in remaining if model not in ready]
    return placed


def parent_of(run: Run, step: str, task: str) -> str | None:
    """The model that a result was made from, as its manifest says; None if it does not. A teacher is read beside it."""
    manifest = run.task(step, task)
    if manifest is None:
        return None
    keys = (key.partition(" ") for key in manifest.inputs)
    names = [name or BASE for above, _, name in keys if above in MAKERS]
    return next((name for name in names if name != manifest.summary.get("teacher")), next(iter(names), None))


def is_trained(counts: dict[str, Any]) -> bool:
    """Whether a model (an entry of `models` in counts.json) was trained: with too few pairs it is the one that it is made from."""
    return nested_value(counts, "training", "trained") is not False


def comparable_models(tuned: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of fine-tuned models (entries of `models` in counts.json) that have a loss over held-out pairs, if it is over the same pairs of
    all: by how many pairs and answer tokens they are, and by what the loss is of.
    """
    with_loss = [
        model for model in tuned if finite_number(nested_value(model, "training", "heldout_loss_after")) is not None
    ]
    pair_sets = {
        (
            evaluation.get("step"),
            *(nested_value(evaluation, "training", key) for key in ("heldout_pairs", "heldout_tokens")),
        )
        for evaluation in with_loss
    }
    return with_loss if len(pair_sets) == 1 else []


def best_model(tuned: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The fine-tuned model with the lowest held-out loss of those that are `comparable_models`; else the last."""
    if candidates := comparable_models(tuned):
        return min(candidates, key=lambda model: float(model["training"]["heldout_loss_after"]))
    return tuned[-1] if tuned else None
