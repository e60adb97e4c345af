"""What the page shows of a reward model and of an alignment: rewards, divergence, lengths, rewards beside loss, fixed prompts."""

from __future__ import annotations

from typing import Any

from crawl2llm.formats.run_records import Run, finite_points, read_json_lines, training_metrics
from crawl2llm.stages.report.figures import BLUE, GREEN, ORANGE, PURPLE, line_chart
from crawl2llm.stages.report.models import Model
from crawl2llm.stages.report.page import NOTHING, format_integer, format_significant

STEPS = ("align.reward", "align.train")
# Of each measure of the held-out rows: what it is. Other names are rewards.
MEASURES = {
    "heldout_preference_loss": ("Held-out loss", "of the method"),
    "heldout_accuracy": ("Held-out accuracy", "share of pairs whose preferred answer is ahead, ties half; kto: answers on the right side"),
    "heldout_margin": ("Held-out margin", "mean reward of preferred answers, minus that of rejected answers"),
    "heldout_answer_loss": ("Held-out loss on answers", "nats a token, of the good answers that held-out rows have"),
    "heldout_ended": ("Held-out answers that end", "share with an end token within max_new_tokens"),
    "heldout_answer_tokens": ("Held-out answers' length", "tokens, mean"),
    "heldout_reward": ("Held-out reward", "mean over answers to held-out prompts, drawn as in training"),
}  # fmt: skip
# Of a reward model: what its accuracy is worth.
REWARD_MODEL_MEASURES = {
    "heldout_accuracy_stderr": ("Error of the held-out accuracy", "standard error, by bootstrap over questions; after"),
    "longer_accuracy": ("Accuracy of the longer answer", "share of held-out pairs whose longer answer is preferred; ties count half"),
    "longer_preferred": ("Longer answers preferred", "share of held-out pairs whose longer answer the model scores higher"),
    "chosen_characters": ("Length of preferred answers", "characters, mean over held-out pairs"),
    "rejected_characters": ("Length of the other answers", "characters, mean over held-out pairs"),
}  # fmt: skip
Fact = tuple[str, str, str]


def alignment_facts(summary: dict[str, Any]) -> list[Fact]:
    """The summary of align.train or of align.reward as rows."""
    rows = [
        ("Method", str(summary.get("method") or NOTHING), ""),
        ("Training rows", format_integer(summary.get("pairs")), "preferences, labelled answers or prompts"),
        ("Held-out rows", format_integer(summary.get("heldout_pairs")), ""),
        ("Optimizer steps", format_integer(summary.get("steps")), ""),
    ]
    for key in summary:
        if not key.endswith("_before"):
            continue
        name = key.removesuffix("_before")
        title, about = MEASURES.get(name, (name.replace("heldout_", "Held-out ", 1), "mean"))
        for when in ("before", "after"):
            rows.append((f"{title} {when}", format_significant(summary.get(f"{name}_{when}")), about))
    rows += [
        (title, format_significant(summary.get(name)), about) for name, (title, about) in REWARD_MODEL_MEASURES.items()
    ]
    return [row for row in rows if row[1] != NOTHING]


def figures(run: Run, model: Model) -> dict[str, str | None]:
    """Figures of an alignment by name; None of what it has not, and of any other model."""
    rows = training_metrics(run, model.step, model.task) if model.step in STEPS else []
    name, step = model.anchor, "optimizer step"

    def draw_curves(title: str, label: str, *wanted: tuple[str, str, str]) -> str | None:
        labelled_curves = [
            (curve_name, *finite_points(rows, "step", key), colour) for curve_name, key, colour in wanted
        ]
        return line_chart(f"{name}-{title.lower().replace(' ', '-')}", title, step, label, labelled_curves)

    rewards = (
        ("answers drawn", "reward", BLUE), ("held-out prompts", "heldout_reward", ORANGE),
        ("preferred", "reward_chosen", GREEN), ("not preferred", "reward_rejected", PURPLE),
    )  # fmt: skip
    right = (("training pairs", "accuracy", BLUE), ("held-out pairs", "heldout_accuracy", ORANGE))
    hacking = [
        (row, loss_series)
        for row in ("heldout_reward", "heldout_margin")
        if (loss_series := finite_points(rows, row, "heldout_answer_loss"))[0]
    ]
    return {
        "reward": draw_curves("Reward", "mean reward", *rewards),
        "accuracy": draw_curves("Accuracy", "share of pairs in the right order", *right),
        "kl": draw_curves("Divergence", "KL, nats", ("from the model that it is made from", "kl", BLUE)),
        "lengths": draw_curves(
            "Length of answers", "tokens",
            ("drawn", "answer_tokens", BLUE), ("preferred", "chosen_tokens", GREEN), ("not preferred", "rejected_tokens", PURPLE),
        ),
        "explained": draw_curves("Values", "share of variance explained", ("answers drawn", "explained_variance", BLUE)),
        "hacking": line_chart(
            f"{name}-hacking", "Reward and held-out loss", "held-out reward", "held-out loss on answers (nats a token)",
            [("before, during and after", *hacking[0][1], ORANGE)] if hacking else [],
        ),
    }  # fmt: skip


def fixed_prompts(run: Run, model: Model) -> list[dict[str, Any]]:
    """The fixed prompts of an alignment, with its answers before and after; none of another model."""
    manifest = run.task(model.step, model.task) if model.step in STEPS else None
    if not manifest or f"{model.task}/prompts.jsonl" not in manifest.files:
        return []
    path = manifest.folder / model.task / "prompts.jsonl"
    with run.guard_reading(path):
        return list(read_json_lines(path))
    return []
