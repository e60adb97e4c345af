"""The settings of the filter quality."""

from typing import Annotated, Literal

from crawl2llm.core.setting_types import THREADS, ColumnName, Share, Threads
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, optional, section, setting


class TrainSettings(Settings):
    """Trains fastText on curated documents against random pages."""

    max_positives: int = setting(100000, "Most curated documents to train on.", ge=1)
    max_negatives: int = setting(100000, "Most random pages to train on.", ge=1)
    min_examples: int = setting(
        10,
        "Fewest training documents per class; with fewer, no classifier is trained, every document stays, and the "
        "report says so.",
        ge=1,
    )
    heldout_fraction: Number = setting(0.1, "Share of both sides that is held out to measure ROC-AUC.", ge=0, lt=1)
    split_by: Literal["origin", "document"] = setting(
        "origin",
        "Unit that is held out together, as in corpus.split: the host of a page or file of a book, or each document.",
    )
    learning_rate: Number = setting(0.1, "fastText's lr (its default for supervised training).", gt=0, le=10)
    dimensions: int = setting(100, "Size of the word vectors.", source="fastText's default", ge=1, le=1000)
    window: int = setting(5, "fastText's ws (its default).", ge=1, le=100)
    epochs: int = setting(5, "Passes over the examples.", source="fastText's default", ge=1, le=1000)
    word_ngrams: int = setting(2, "Longest word n-gram as a feature.", source="DCLM, arXiv:2406.11794", ge=1, le=5)
    min_count: int = setting(1, "Least occurrences of a word.", ge=1)
    buckets: int = setting(
        2000000, "Hash buckets for n-grams; the model takes about 4 x buckets x dimensions bytes.", ge=1
    )
    seed: int = setting(0, "Seed of the sample and of fastText.", ge=0)


class ScoreSettings(Settings):
    """Scores every document."""

    max_characters: int = setting(100000, "Characters at a document's beginning that are scored.", ge=1)


class NgramsSettings(Settings):
    """Features that the trained classifier learnt, for the report. Off unless `number` is above 0."""

    number: int = setting(0, "Words and n-grams to show on either side; 0 does not look for them.", ge=0, le=1000)
    documents: int = setting(
        2000, "Documents, chosen by hash, whose n-grams are looked at; about 50 kB of memory each.", ge=1
    )
    min_documents: int = setting(5, "Fewest of these documents that an n-gram is in.", ge=1)
    seed: int = setting(0, "Seed of the choice.", ge=0)


class ScorerModel(Settings):
    """A classifier that scores texts."""

    name: ColumnName = setting()
    path: NonEmpty = setting()
    label: NonEmpty | None = optional()
    values: dict[str, Number] | None = optional(min_length=1)
    better: Literal["high", "low"] | None = optional()


class FasttextSettings(Settings):
    """Scores every document by ready fastText classifiers. Runs if `models` names any."""

    models: list[ScorerModel] = setting(
        [],
        "Ready models: `name`, a column of the scores; `path` of the .bin or .ftz file (with a digest as in "
        "language.score.model); `label`, whose probability is the score (DCLM's classifier, arXiv:2406.11794, "
        "section 4.4: hq), or `values`, a number for each label, for the expected value of classifiers with "
        "classes of quality; `better`: `high` scores, the default, or `low`.",
        file=True,
        pinned=True,
    )
    max_characters: int = setting(100000, "Characters at a document's beginning that are scored.", ge=1)


class TransformersSettings(Settings):
    """Scores every document by ready sequence classifiers of transformers, on a GPU or a CPU. Runs if `models` names any."""

    models: list[ScorerModel] = setting(
        [],
        "Ready models: `name`, a column of the scores; `path` of the folder (config.json, safetensors, "
        "tokenizer; no code of its own is run). The score of a head with one output is that output "
        "(FineWeb-Edu's classifier, arXiv:2406.17557, section 4); of one with several, the probability of "
        "`label`, or with `values`, a number for each label, their expected value; `better`: `high` scores, the "
        "default, or `low`. `path: FOLDER#sha256=DIGEST` has the folder's SHA-256 compared before it is read "
        "(docs/filters/quality.md).",
        file=True,
        pinned=True,
    )
    max_tokens: int = setting(
        512,
        "Tokens at a document's beginning that are scored (FineWeb-Edu's classifier: 512), at most those that "
        "the model takes.",
        ge=1,
        le=1000000,
    )
    max_characters: int = setting(20000, "Characters at a document's beginning that are tokenized.", ge=1)
    batch_tokens: int = setting(
        16384,
        "Tokens of a batch, with padding; a batch has texts of similar length. Tracked, because it affects the last "
        "digits.",
        ge=1,
    )
    precision: Literal["fp32", "bf16"] = setting("fp32", "Precision of the weights.")
    threads: Threads = THREADS
    device: Literal["auto", "cuda", "cpu"] = setting(
        "auto",
        "Device of the models; auto: a GPU if there is one. Scores have 6 digits; a GPU's may differ in the last.",
        placement=True,
    )


class LmSettings(Settings):
    """Trains n-gram language models by KenLM, one for each language that has enough documents; `kenlm` is then a scorer. Off
    unless `enabled`.
    """

    enabled: bool = setting(False, "Train them. Needs KenLM's programs: make kenlm-tools.")
    sources: list[NonEmpty] = setting([], "Sources to learn from, by name; if empty, the curated sources.", unique=True)
    order: int = setting(
        5, "Longest n-gram, 5 as in cc_net.", source="Wenzek et al. 2020, arXiv:1911.00359, section 3.4", ge=2, le=6
    )
    prune: list[Annotated[int, Allowed(ge=0)]] = setting(
        [],
        "For each order from 1 on, the count up to which n-grams are omitted (lmplz's --prune); if empty, all stay.",
        max_length=6,
    )
    max_documents: int = setting(1000000, "Most documents to learn from, chosen by hash.", ge=1)
    min_documents: int = setting(10, "Fewest documents of a language to train a model of it.", ge=1)
    heldout_fraction: Number = setting(
        0.1, "Share of the documents that is held out, by origin, to measure ROC-AUC.", ge=0, lt=1
    )
    seed: int = setting(0, "Seed of both choices.", ge=0)
    memory_mb: int = setting(
        1000, "Memory of lmplz's sort in MB; it sorts on the disk beyond that.", ge=16, placement=True
    )


class KenlmModel(Settings):
    """A language model of KenLM that scores texts."""

    name: ColumnName = setting()
    path: NonEmpty = setting()


class KenlmSettings(Settings):
    """Scores every document by its perplexity under KenLM models. Runs if `models` names any, and with quality.lm."""

    models: list[KenlmModel] = setting(
        [],
        "Ready models: `name`, a column of the scores; `path` of a folder as cc_net's, with "
        "`<language>.arpa.bin` and, where the model is of pieces, `<language>.sp.model` for each language. Text "
        "is normalised as cc_net's (text_normalizer.py). `path: FOLDER#sha256=DIGEST` has the folder's SHA-256 "
        "compared before it is read (docs/filters/quality.md).",
        file=True,
        pinned=True,
    )
    max_characters: int = setting(100000, "Characters at a document's beginning that are scored.", ge=1)


class CalibrateSettings(Settings):
    """Learns the distribution of each scorer's scores, to combine them and to compare runs. Runs if there is a
    scorer besides the trained classifier."""

    trained: bool = setting(
        True,
        "Use the classifier that the run trains as a scorer. If false and there is another scorer, no classifier is "
        "trained.",
    )
    method: Literal["linear", "reciprocal_rank", "minimum", "maximum"] = setting(
        "linear",
        "How the scorers' quantiles become one number: their weighted mean, reciprocal rank fusion (Cormack et "
        "al. 2009), the lowest (all agree) or the highest (one is enough).",
    )
    weights: dict[str, Number] = setting(
        {},
        "Weights of scorers in linear and reciprocal_rank; default 1. 0 excludes a scorer, from minimum and maximum "
        "too; a negative weight inverts it.",
    )
    rank_constant: Number = setting(
        60, "k of reciprocal rank fusion: 1 / (k + rank).", source="Cormack et al. 2009, section 3", ge=0
    )
    reference: NonEmpty | None = setting(
        None,
        "quantiles.json of another run's quality.calibrate: scores are mapped by its quantiles and cutoffs, so both "
        "runs' scores are comparable. null: this run's quantiles.",
        file=True,
    )
    max_documents: int = setting(
        1000000, "Documents of the sample, chosen by hash; about 200 bytes of memory each.", ge=1
    )
    bucket_of: NonEmpty | None = setting(
        None,
        "Scorer whose values divide head, middle and tail, by language; null: the first KenLM scorer by name, if any.",
    )
    buckets: list[Annotated[Number, Allowed(gt=0, lt=1)]] = setting(
        [0.3, 0.6],
        "Share of the best documents of a language that are head, and head or middle.",
        source="cc_net: the 30th and 60th percentile, arXiv:1911.00359, section 3.4",
        min_length=2,
        max_length=2,
    )
    cutoffs: dict[str, Annotated[list[Number], Allowed(min_length=2, max_length=2)]] = setting(
        {}, "The two scores themselves, for a language; `any` is for documents of which no language is known."
    )
    seed: int = setting(0, "Seed of the sample.", ge=0)


class CombineRequire(Settings):
    """What the score of a scorer has to be."""

    scorer: NonEmpty = setting()
    min: Number | None = optional()
    max: Number | None = optional()
    quantile_min: Share | None = optional()
    buckets: list[Literal["head", "middle", "tail"]] | None = optional(min_length=1, unique=True)


class CombineSettings(Settings):
    """Makes one score of several for each document, and says which thresholds it fails. Runs with quality.calibrate."""

    require: list[Annotated[list[CombineRequire], Allowed(min_length=1)]] = setting(
        [],
        "Thresholds that come before quality.select.method: a list of alternatives (OR), each a list of "
        "conditions (AND) such as `{scorer: edu, min: 2.5}`, with one of `min`, `max`, `quantile_min` (1 is the "
        "best) and `buckets`. A condition on a score that is not there holds.",
    )


class SelectSettings(Settings):
    """Keeps the best."""

    method: Literal["fraction", "pareto", "threshold"] = setting(
        "fraction",
        "Top fraction, GPT-3's Pareto sample (arXiv:2005.14165, appendix A), or scores of `threshold` and more. "
        "Of several scorers the score is their combined quantile.",
    )
    keep_fraction: Share = setting(0.5, "Share of the crawl's documents to keep under method fraction.")
    by: Literal["all", "language"] = setting(
        "all",
        "Whether method fraction keeps the top of all documents, or the top of each language (languages with "
        "fewer than 100 documents together); needs the filter language.",
        unless_default=True,
    )
    threshold: Share = setting(
        0.5,
        "Least score to keep under method threshold. DCLM kept the top tenth (arXiv:2406.11794, section 4.4): "
        "0.9 as a quantile of a reference.",
        unless_default=True,
    )
    alpha: Number = setting(9, "Shape of the Pareto draw.", source="GPT-3 used 9", gt=0)
    seed: int = setting(0, "Seed of the Pareto draw.", ge=0)


class QualitySettings(Settings):
    """A classifier that tells curated documents from random pages."""

    train: TrainSettings = section()
    score: ScoreSettings = section()
    ngrams: NgramsSettings = section()
    fasttext: FasttextSettings = section()
    transformers: TransformersSettings = section()
    lm: LmSettings = section()
    kenlm: KenlmSettings = section()
    calibrate: CalibrateSettings = section()
    combine: CombineSettings = section()
    select: SelectSettings = section()
