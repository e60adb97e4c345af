"""The steps of the filter quality."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain.step import LANGUAGES_BEFORE, TEXT, Config, Filter, Step
from crawl2llm.filters.quality.scorers import other_scorers, scorer_names, trains_classifier

SCORES = (".score", ".fasttext", ".transformers", ".kenlm")  # what scores documents
TEXT_WITH_LANGUAGES = {**TEXT, "languages": LANGUAGES_BEFORE}


def has_scorers(step: str, config: Config) -> bool:
    """Whether the config names models that this step scores with."""
    return bool(scorer_names(config, step))


def has_other_scorers(config: Config) -> bool:
    """Whether other scorers stand beside the classifier that the run trains, or in its place."""
    return bool(other_scorers(config))


def shows_ngrams(config: Config) -> bool:
    """Whether the config asks what the classifier of the run learnt."""
    return trains_classifier(config) and bool(config["quality"]["ngrams"]["number"])


def trains_language_models(config: Config) -> bool:
    """Whether the run trains language models to score with."""
    return bool(config["quality"]["lm"]["enabled"])


def reads_languages_by_language(need: str, config: Config, task: str) -> bool:
    """Languages are read if each keeps its own share."""
    return need != "language.score" or config["quality"]["select"]["by"] == "language"


FILTER = Filter(
    {
        "train": Step(inputs=TEXT, is_used=trains_classifier, exempts=True),
        "score": Step(inputs={"model": ".train", **TEXT}, per="shard", is_used=trains_classifier),
        "ngrams": Step(inputs={"model": ".train", **TEXT}, is_used=shows_ngrams),
        "fasttext": Step(inputs=TEXT, per="shard", is_used=partial(has_scorers, "fasttext")),
        "transformers": Step(
            inputs=TEXT, per="shard", is_used=partial(has_scorers, "transformers"), environment="evaluate"
        ),
        "lm": Step(inputs=TEXT_WITH_LANGUAGES, optional=("languages",), is_used=trains_language_models, exempts=True),
        "kenlm": Step(
            inputs={"lm": ".lm", **TEXT_WITH_LANGUAGES},
            optional=("lm", "languages"),
            per="shard",
            is_used=partial(has_scorers, "kenlm"),
        ),
        "calibrate": Step(
            (".train", ".lm", *SCORES),
            inputs={"model": ".train", "lm": ".lm"},
            optional=("model", "lm"),
            is_used=has_other_scorers,
            exempts=True,
        ),
        "combine": Step(
            (".calibrate", *SCORES), inputs={"calibration": ".calibrate"}, per="shard", is_used=has_other_scorers
        ),
        "select": Step(
            inputs={"signals": ".score", "combined": ".combine", "languages": "language.score"},
            optional=("signals", "combined", "languages"),
            reads=reads_languages_by_language,
            exempts=True,
        ),
    }
)
