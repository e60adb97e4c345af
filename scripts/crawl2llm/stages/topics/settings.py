"""The settings of the stage topics."""

from typing import Literal

from crawl2llm.core.settings import Settings, section, setting


class TrainSettings(Settings):
    """Finds the topics of a sample of the documents of ingest.extract."""

    clusters: int = setting(
        0,
        "Topics, of each language where they are by language, and fewer where the sample has less than 20 "
        "documents for each; 0 looks for none.",
        ge=0,
        le=99,
    )
    by: Literal["all", "language"] = setting(
        "language",
        "Whether each language of language.score has topics of its own, or all documents share theirs: in a "
        "crawl in several languages these would be the languages.",
    )
    documents: int = setting(10000, "Documents of the sample, chosen by hash; about 8 kB of memory each.", ge=1)
    least: int = setting(
        100,
        "Fewest documents of the sample that a language needs for topics of its own; those of other languages "
        "are `other`.",
        ge=40,
    )
    characters: int = setting(5000, "Characters at a document's beginning that decide its topic.", ge=1)
    terms: int = setting(
        10000,
        "Terms of a model: words, and pairs of characters in scripts without spaces; those that are in most "
        "documents of the sample, but not in more than half of it.",
        ge=10,
    )
    dimensions: int = setting(
        50, "Dimensions that TF-IDF is reduced to before k-means (latent semantic analysis).", ge=2
    )
    map: int = setting(
        500, "Documents on the map of each of the three largest languages (t-SNE); 0 draws none.", ge=0, le=5000
    )
    seed: int = setting(0, "Seed of the sample, of k-means and of the map.", ge=0)


class ScoreSettings(Settings):
    """Says the topic of every document."""


class CountSettings(Settings):
    """Counts the documents of each topic that got to each filter, and those that it dropped."""


class TopicsSettings(Settings):
    """Clusters of documents with the same words, and what each filter takes away of them. Off unless `topics.train.clusters`
    is above 0. docs/stages/topics.md.
    """

    train: TrainSettings = section()
    score: ScoreSettings = section()
    count: CountSettings = section()
