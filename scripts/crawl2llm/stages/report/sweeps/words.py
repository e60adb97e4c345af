"""What the page over all variants says in words: first sentences, notes, what verdicts rest on, the scaling law, formulas and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crawl2llm.core.console import format_quantity, singular_or_plural
from crawl2llm.stages.report.page import format_percent
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import scaling, tables, verdicts
from crawl2llm.stages.report.sweeps.differences import POOLED

Row = dict[str, Any]
FORMULA = {
    (True, True): "L(N, D) = E + A / N^α + B / D^β",
    (True, False): "L(N) = E + A / N^α",
    (False, True): "L(D) = E + B / D^β",
}


def lead_sentence(comparison: Row, base: Row | None) -> str:
    """The page in two sentences."""
    number = f"{format_quantity(len(comparison['variants']), 'variant')} in {format_quantity(len(comparison['settings']), 'setting')}."
    if not base:
        return number
    rows = base["measures"][0]["to_main"]
    if all(row["verdict"] == verdicts.UNKNOWN for row in rows):
        verdict_words = "no verdict, because the noise between trainings is unknown"
    else:
        counts = {word: sum(row["verdict"] == word for row in rows) for word in tables.WORDS}
        verdict_names = tables.WORDS | {
            verdicts.UNKNOWN: "without a verdict, because the noise between trainings is unknown"
        }
        verdict_words = ", ".join(f"{counts[word]} {verdict_names[word]}" for word in tables.WORDS if counts[word])
    compared = format_quantity(len(rows), "setting") + (" is" if len(rows) == 1 else " are")
    return f"{number} {compared} compared with main by bits per byte on the same held-out text: {verdict_words}."


def variants_with_twins(variants: Sequence[Row]) -> dict[str, list[str]]:
    """Variants whose base model is that of another one, by the name of that."""
    out: dict[str, list[str]] = {}
    for row in variants:
        if row["same_as"]:
            out.setdefault(row["same_as"], []).append(row["name"])
    return out


def awaited_trainings(comparison: Row, base: Row) -> list[str]:
    """The trainings with other seeds whose evaluation is not there yet."""
    rows = {row["name"]: row for row in comparison["variants"]}
    out = []
    for setting in comparison["settings"]:
        trainings = [name for name in setting["variants"] if not rows[name]["same_as"] and not rows[name]["stopped"]]
        out += [name for name in trainings if len(trainings) > 1 and name not in base["variants"]]
    return out


def why_no_verdicts(comparison: Row) -> str:
    """Why there is nothing to compare."""
    if len(comparison["variants"]) > 1 and all(row["same_as"] for row in comparison["variants"][1:]):
        return "Nothing can be compared: all variants have the same base model, from one training."
    return (
        "Nothing can be compared yet: main, and a variant of another setting, need a model that was evaluated on the common held-out text "
        "(evaluate.common) and not stopped early."
    )


def reader_notes(comparison: Row, base: Row | None) -> list[str]:
    """What a reader has to know before the numbers."""
    out = [
        f"{', '.join([name, *twins])} have the same base model, from one training: it counts once."
        for name, twins in variants_with_twins(comparison["variants"]).items()
    ]
    waiting = awaited_trainings(comparison, base) if base else []
    if base and not base["measures"][0]["noise"]["freedom"]:
        unknown = "the noise between trainings is unknown, and intervals are those of documents alone"
        if waiting:
            out.append(
                f"Trainings with other seeds are not evaluated yet ({', '.join(waiting)}): until then {unknown}."
            )
        else:
            out.append(
                f"No setting was trained with more than one seed: {unknown}. Set sweep.seeds to 3 to train each three times."
            )
    elif base and min(base["seeds"]) == 1 and comparison["options"]["noise"] == POOLED:
        alone = [name for name, seeds in zip(base["settings"], base["seeds"], strict=True) if seeds == 1]
        out.append(
            f"One seed alone{' so far' if waiting else ''}: {', '.join(alone)}; the noise that the other settings have between seeds is "
            "taken for theirs."
        )
    return out


def about_verdicts(base: Row, options: CompareSettings) -> str:
    """What the verdicts rest on."""
    family = len(base["measures"][0]["to_main"])
    noise_words = "pooled over all settings" if options.noise == POOLED else "of the two settings themselves (Welch)"
    return (
        f"The error of a difference has two parts: the noise between trainings with other seeds, {noise_words}, and that of the documents, "
        f"by a bootstrap over the same documents for both. A verdict is given where the p-value, corrected for {family} "
        f"{singular_or_plural(family, 'comparison')} (Holm), is at most {1 - options.confidence:.2g}. Detectable "
        f"from: the smallest difference that these seeds and documents would show with probability "
        f"{format_percent(options.power, 0)}."
    )


def law_section(fitted: Row, options: CompareSettings) -> Row:
    """The scaling law as the page shows it."""
    if "why" in fitted:
        return {"why": fitted["why"]}
    constants = fitted["constants"]
    kinds = ("alpha" in constants, "beta" in constants)
    about = (
        f"Fitted to {fitted['points']} trainings of {fitted['sizes']} sizes and {fitted['token_counts']} numbers of tokens. L: bits per "
        "byte on the common held-out text. N: all parameters, with embeddings, as in Hoffmann et al. D: tokens trained. Mean error of the "
        f"fit: {format_percent(fitted['error'], 2)}. Intervals by bootstrap over trainings ({fitted['resamples']:,} resamples)."
    )
    if kinds == (False, True):
        about += " Sizes do not vary enough: E holds A / N^α too."
    if kinds == (True, False):
        about += " Tokens do not vary enough: E holds B / D^β too."
    if fitted["most_epochs"] > 1:
        about += (
            f" Some text was read {fitted['most_epochs']:.1f} times: repeated tokens are worth less than new ones (Muennighoff et al. "
            "2023, arXiv:2305.16264), which this law does not know."
        )
    if fitted["left_out"]:
        about += f" Without {', '.join(fitted['left_out'])}: their text differs."
    names = {"alpha": "α", "beta": "β"}
    rows = [{"name": names.get(name, name), **constant} for name, constant in constants.items()]
    return {"formula": FORMULA[kinds], "about": about, "constants": rows, "optima": fitted["optima"]}


def formula_rows(options: CompareSettings) -> list[tuple[str, str]]:
    """How each number is made, with its source; docs/commands/compare.md has more."""
    level = f"{1 - options.confidence:.2g}"
    sure = format_percent(options.confidence, 0)
    resamples = options.resamples
    return [
        (
            "Bits per byte",
            "Σ nats / (ln 2 · Σ bytes) over the documents that main holds out. Their near-duplicates are in no variant's training text.",
        ),
        ("Centered score", "(accuracy − chance) / (1 − chance)."),
        ("Difference", "Mean over the seeds of a setting minus the mean over main's."),
        (
            "Noise of seeds",
            "σ² (1/n + 1/m). σ² is the variance within settings, pooled: Σ Σ (value − mean of its setting)² / Σ (n − 1). With `noise: "
            "welch` each setting's own (Welch 1947).",
        ),
        (
            "Noise of documents",
            f"Variance of the difference over {resamples:,} draws of documents with replacement, the same for both (Efron and Tibshirani "
            "1993; Miller 2024, arXiv:2411.00640), less what is in the noise of seeds already.",
        ),
        ("Interval", f"Difference ± t · √(both parts), {sure}; degrees of freedom by Satterthwaite 1946."),
        (
            "Correction",
            f"Holm 1979: the chance of one false verdict or more in a family of comparisons is at most {level}.",
        ),
        (
            "Detectable difference",
            f"Power {format_percent(options.power, 0)} by the noncentral t distribution (Cohen 1988), at the level of the correction's "
            "first step. More seeds reduce the error of the seeds, not that of the documents. The measured noise is "
            "taken as the true noise.",
        ),
        (
            "Scaling law",
            "Hoffmann et al. 2022 (arXiv:2203.15556), approach 3, with the corrections of Besiroglu et al. 2024 (arXiv:2404.10102). "
            f"Operations are {scaling.OPERATIONS} N D.",
        ),
        (
            "Limits",
            "A verdict holds for this size of model and so many tokens. Among many settings the best one looks better than it is. Seeds "
            "change what `sweep.seed_keys` names, and nothing else.",
        ),
    ]
