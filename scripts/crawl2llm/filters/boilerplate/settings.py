"""The settings of the filter boilerplate."""

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import Settings, section, setting
from crawl2llm.filters.edit_settings import SelectSettings


class CountSettings(Settings):
    """Counts on how many documents of its host each line is, compared in lower case, digits as 0, without punctuation."""


class FrequentSettings(Settings):
    """Finds the lines that are frequent within their host, over all shards."""

    documents_min: int = setting(
        7,
        "Fewest documents of a host that a frequent line is on: more than 6, as Llama 3 removes lines.",
        source="arXiv:2407.21783, section 3.1.1; there in 30 million documents of any host",
        ge=2,
    )
    share_min: Share = setting(
        0.1, "Least share of the host's documents that a frequent line is on; ours (docs/filters/boilerplate.md)."
    )


class ScoreSettings(Settings):
    """Takes the frequent lines out, and measures what is left."""


class BoilerplateSettings(Settings):
    """Lines that are on many pages of their host, such as menus and footers, taken out of documents. Off unless `filters`
    lists it.
    """

    count: CountSettings = section()
    frequent: FrequentSettings = section()
    score: ScoreSettings = section()
    select: SelectSettings = section()
