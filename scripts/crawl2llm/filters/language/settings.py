"""The settings of the filter language."""

from crawl2llm.core.setting_types import LanguageLabel, Share
from crawl2llm.core.settings import NonEmpty, Settings, section, setting


class ScoreSettings(Settings):
    """Scores every document with a fastText model."""

    model: NonEmpty = setting(
        "bundled:lid.176.ftz",
        "Path of a fastText language model, or `bundled:lid.176.ftz`. `PATH#sha256=DIGEST` has the file's "
        "SHA-256 compared before it is read.",
        file=True,
        pinned=True,
    )


class CompareSettings(Settings):
    """Other models' languages, and the script, of every document. Off unless `models` names one or `script` is true."""

    models: list[NonEmpty] = setting(
        [],
        "Paths of further fastText language models, with a digest as in language.score.model, such as GlotLID's "
        "(Kargaran et al. 2023, arXiv:2310.16248) or OpenLID's (Burchell et al. 2023, arXiv:2305.13820); labels "
        "such as `eng_Latn` and `en` are compared under one code.",
        unique=True,
        file=True,
        pinned=True,
    )
    script: bool = setting(
        False,
        "Count the characters of each script (Unicode's property Script), and which share is of a script that "
        "the document's language is written in.",
    )


class SelectSettings(Settings):
    """Thresholds on the scores."""

    languages: list[NonEmpty] = setting(
        ["en"], "Languages to keep, as the model's labels; empty keeps all.", unique=True
    )
    threshold: Share = setting(0.65, "Least probability of the best language.", source="FineWeb")
    agreement_min: Share | None = setting(
        None,
        "Least share of all models, including language.score's, that agree on the language; needs "
        "language.compare.models.",
        unless_default=True,
    )
    script_min: Share | None = setting(
        None,
        "Least share of a document's characters in a script of its language; needs language.compare.script.",
        unless_default=True,
    )
    thresholds: dict[
        LanguageLabel,
        Share,
    ] = setting(
        {},
        "`threshold` for some languages, by label, as in `{fi: 0.5}`, in place of that and of the lower ones "
        "that six languages have where `languages` names them (docs/filters/language.md). FineWeb2 sets one for "
        "each language, between 0.3 and 0.9.",
        source="Penedo et al. 2025, arXiv:2506.20920",
        unless_default=True,
    )


class LanguageSettings(Settings):
    """Language identification."""

    score: ScoreSettings = section()
    compare: CompareSettings = section()
    select: SelectSettings = section()
