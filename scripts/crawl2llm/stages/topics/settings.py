"""The settings of the stage topics."""

from typing import Literal

from crawl2llm.core.settings import Settings, section, setting


class TrainSettings(Settings):
    """Finds the topics of a sample of the documents of ingest.extract."""

    clusters: int = setting(
        0,
        "Number of topics (per language if `by` is language), at most one per 20 sampled documents; 0: no topics.",
        ge=0,
        le=99,
    )
    by: Literal["all", "language"] = setting(
        "language",
        "Separate topics for each language of language.score; with shared topics, those of a multilingual crawl would "
        "just be its languages.",
    )
    documents: int = setting(10000, "Documents of the sample, chosen by hash; about 8 kB of memory each.", ge=1)
    least: int = setting(
        100,
        "Fewest sampled documents for a language to have topics; documents of smaller languages are `other`.",
        ge=40,
    )
    characters: int = setting(5000, "Characters at a document's beginning that decide its topic.", ge=1)
    terms: int = setting(
        10000,
        "Terms of a model: words, and pairs of characters in scripts without spaces; those in the most documents of "
        "the sample, except terms in more than half of it.",
        ge=10,
    )
    dimensions: int = setting(
        50, "Dimensions that TF-IDF is reduced to before k-means (latent semantic analysis).", ge=2
    )
    map: int = setting(
        500, "Documents on the map of each of the three largest languages (t-SNE); 0: no map.", ge=0, le=5000
    )
    seed: int = setting(0, "Seed of the sample, of k-means and of the map.", ge=0)


class ScoreSettings(Settings):
    """Assigns a topic to every document."""


class CountSettings(Settings):
    """Counts the documents of each topic that got to each filter, and those that it dropped."""


class TopicsSettings(Settings):
    """Clusters of documents with the same words, and how many documents of each every filter drops. Off unless `topics.train.clusters`
    is above 0. docs/stages/topics.md.
    """

    train: TrainSettings = section()
    score: ScoreSettings = section()
    count: CountSettings = section()
