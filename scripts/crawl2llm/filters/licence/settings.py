"""The settings of the filter licence."""

from typing import Literal

from crawl2llm.core.settings import NonEmpty, Settings, section, setting


class ScoreSettings(Settings):
    """Reads the licence of every document from its metadata; that of a page is there with `ingest.extract.licence`."""

    sources: dict[str, NonEmpty] = setting({}, "Licences by source, for documents that name no licence.")


class SelectSettings(Settings):
    """Keeps documents under an allowed licence; documents of curated sources stay."""

    allowed: list[NonEmpty] = setting(
        ["cc-by", "cc-by-sa", "cc0", "public-domain"],
        "Licences to keep: SPDX names in lower case, without a version for all versions. The default is Common Pile's "
        "list for web pages.",
        source="arXiv:2506.05209, section 3: CC BY, CC BY-SA and CC0",
        unique=True,
    )
    unknown: Literal["drop", "keep"] = setting("drop", "Action for documents that name no licence.")
    said: list[Literal["rel", "meta", "json_ld", "link", "metadata", "source"]] = setting(
        ["rel", "meta", "json_ld", "metadata", "source"],
        "Accepted evidence: `rel=license`, a meta tag or JSON-LD of a page, or the metadata of a row or source. Other "
        "links (`link`) may concern a picture.",
        unique=True,
    )
    beside_max: int | None = setting(
        0, "Most other licences that are named beside the first in the same way; null allows any number.", ge=0
    )


class LicenceSettings(Settings):
    """Keeps documents whose page, metadata or source names an allowed licence. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
