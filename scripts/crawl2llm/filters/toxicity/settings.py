"""The settings of the filter toxicity."""

from typing import Annotated

from crawl2llm.core.setting_types import ColumnName, LanguageCode, Share
from crawl2llm.core.settings import Allowed, NonEmpty, Settings, section, setting


class ScoreClassifier(Settings):
    """A classifier, and the label whose probability counts."""

    name: ColumnName = setting()
    path: NonEmpty = setting()
    label: NonEmpty = setting()


class ScoreSettings(Settings):
    """Counts listed words, and asks classifiers."""

    lists: list[NonEmpty] = setting(
        [],
        "Folders with a file for each language, called by its code (`en`, `fr.txt`), with a word or phrase a "
        "line: the layout of LDNOOBW, whose lists C4 takes (Raffel et al. 2020, section 2.2). A document is "
        "compared with the list of its language.",
        unique=True,
        file=True,
    )
    always: list[LanguageCode] = setting([], "Languages whose lists are compared with all documents.", unique=True)
    ignored: dict[
        LanguageCode,
        Annotated[list[NonEmpty], Allowed(unique=True)],
    ] = setting(
        {"ja": ["sm", "グロ", "女の子"], "zh": ["性"]},
        "Entries by language that do not count, as C4 has them.",
        source="datatrove filters/c4_filters.py",
    )
    classifiers: list[ScoreClassifier] = setting(
        [],
        "fastText models by path (with a digest as in language.score.model), each with a name of its own and "
        "the label whose probability counts, as {name: hate, path: "
        "jigsaw_fasttext_bigrams_hatespeech_final.bin, label: toxic}: Dolma's.",
        source="arXiv:2402.00159, on content filtering",
        unique=True,
        file=True,
        pinned=True,
    )


class SelectSettings(Settings):
    """Compares hits and probabilities with thresholds; documents of curated sources stay."""

    terms_max: int | None = setting(
        None,
        "Most distinct listed words in a document. C4: 0, any listed word drops it; null: no limit.",
        ge=0,
    )
    share_max: Share | None = setting(
        0.01,
        "Most listed words by words, 0.01 as ROOTS for English (bigscience data-preparation parameters_filtering.py; "
        ".001 to .1 in other languages); null: no limit.",
    )
    share_terms_min: int = setting(
        2,
        "Fewest distinct listed words for that share to count, since a text may be about one of them. ROOTS: 1.",
        ge=1,
    )
    threshold: Share = setting(
        0.4,
        "Highest probability of a classifier's label that is kept, 0.4 as Dolma's.",
        source="arXiv:2402.00159, on content filtering",
    )
    thresholds: dict[str, Share] = setting({}, "Another threshold by the classifier's name.")


class ToxicitySettings(Settings):
    """Toxic and adult content, by lists of words and by classifiers. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
