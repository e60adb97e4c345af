"""The settings of the filter licence."""

from typing import Literal

from crawl2llm.core.settings import NonEmpty, Settings, section, setting


class ScoreSettings(Settings):
    """Reads the licence of every document from its metadata; that of a page is there with `ingest.extract.licence`."""

    sources: dict[str, NonEmpty] = setting({}, "Licences by source, of its documents that say none themselves.")


class SelectSettings(Settings):
    """Keeps documents under an allowed licence; documents of curated sources stay."""

    allowed: list[NonEmpty] = setting(
        ["cc-by", "cc-by-sa", "cc0", "public-domain"],
        "Licences that are kept, as SPDX's names in small letters, without a version for all versions. The "
        "default is what Common Pile's web pages are under.",
        source="arXiv:2506.05209, section 3: CC BY, CC BY-SA and CC0",
        unique=True,
    )
    unknown: Literal["drop", "keep"] = setting("drop", "What is done with documents that say no licence.")
    said: list[Literal["rel", "meta", "json_ld", "link", "metadata", "source"]] = setting(
        ["rel", "meta", "json_ld", "metadata", "source"],
        "How a licence has to be said: by `rel=license`, a meta tag or JSON-LD of a page, the metadata of a "
        "row, or of the source. `link`, any other link to a licence, is left out: it may be about a picture.",
        unique=True,
    )
    beside_max: int | None = setting(
        0, "Most other licences that are named beside the first in the same way; null allows any number.", ge=0
    )


class LicenceSettings(Settings):
    """Documents under an allowed licence, as far as page, metadata or source say. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
