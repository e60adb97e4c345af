"""The settings of the stage corpus."""

from typing import Literal

from crawl2llm.core.settings import Number, Settings, section, setting


class SplitSettings(Settings):
    """Chooses the validation documents."""

    validation_fraction: Number = setting(0.01, "Share of the documents held out from training.", gt=0, lt=1)
    split_by: Literal["origin", "document"] = setting(
        "origin",
        "Unit of the split: the origin (a page's host, the file of a book cut by `chunk_words`), or the document, "
        "which may split a book.",
    )
    drop_near_duplicates: bool = setting(
        True,
        "Drop a training document that is a near-duplicate of a validation document; they are counted in any "
        "case. Needs the filter dedup, which measures the pairs.",
    )
    similarity: Number = setting(
        0.5,
        "Least Jaccard similarity of such near-duplicates. Pairs far below dedup's threshold are often missed "
        "(docs/stages/corpus.md).",
        gt=0,
        le=1,
    )
    seed: int = setting(0, "Seed of the choice.", ge=0)


class ReferenceSettings(Settings):
    """Keeps the shingles of the documents that `main` holds out. Runs where variants are compared, and their training texts
    may hold these documents.
    """


class HeldoutSettings(Settings):
    """Finds the training documents of a variant that `main` holds out, that come from an origin that it holds out, or that are
    near-duplicates of what it holds out.
    """


class WriteSettings(Settings):
    """Writes the texts, shuffled."""

    seed: int = setting(0, "Seed of the order.", ge=0)


class CorpusSettings(Settings):
    """Joins the verdicts and writes the survivors."""

    split: SplitSettings = section()
    reference: ReferenceSettings = section()
    heldout: HeldoutSettings = section()
    write: WriteSettings = section()
