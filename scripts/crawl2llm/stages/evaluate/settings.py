"""The settings of the stage evaluate."""

from typing import Literal

from crawl2llm.core.setting_types import (
    PRECISION,
    THREADS,
    BatchSize,
    EndpointSettings,
    Precision,
    PublicTask,
    Seed,
    Threads,
)
from crawl2llm.core.settings import NonEmpty, Number, Settings, section, setting


class ItemsSettings(Settings):
    """Makes tasks from the validation documents, and measures what n-grams and compressors reach."""

    tasks: list[Literal["word_order", "next_word", "continuation"]] = setting(
        ["word_order", "next_word", "continuation"],
        "`word_order`: a sentence, or the same with two adjacent words swapped. `next_word`: the next word of "
        "four of the same length, case and frequency. `continuation`: the right continuation of four. `[]` asks "
        "none.",
        unique=True,
    )
    per_task: int = setting(
        500, "Items of a task at most, from as many different documents as there are.", ge=1, le=100000
    )
    per_document: int = setting(8, "Items of a task that one document gives at most.", ge=1, le=1000)
    context_words: int = setting(
        32,
        "Words of the document that stand before the choices, fewer at its beginning; one character each in "
        "scripts without spaces.",
        ge=1,
        le=10000,
    )
    continuation_words: int = setting(8, "Words of a choice of `continuation`.", ge=1, le=1000)
    counted_tokens: int = setting(
        10000000,
        "Training tokens that the unigram and the bigram model count, as documents chosen by hash. A token "
        "takes 40 bytes of memory.",
        ge=1,
        le=1000000000,
    )
    seed: Seed = setting(0, "Seed of the choice of documents and places, and of the bootstrap.")


class ModelSettings(Settings):
    """Evaluates one model on validation text and, with lm-evaluation-harness, on the held-out questions."""

    max_tokens: int = setting(
        200000,
        "Validation tokens to score, as whole documents chosen by hash; tokens of the run's own tokenizer, also for published models.",
        ge=1,
        le=1000000000000,
    )
    context: int | None = setting(None, "Window in tokens; null is the context length of the model.", ge=2, le=1048576)
    carry: Number = setting(0.5, "Share of a window that is text before the tokens it scores.", ge=0, le=0.9)
    tasks: list[NonEmpty] = setting(
        [], "More tasks of lm-evaluation-harness, as paths of YAML files over local data.", unique=True, file="yaml"
    )
    prompts: list[NonEmpty] = setting(["The", "This is"], "Texts that each model continues.")
    questions: int = setting(
        5, "Held-out questions whose generated answers are shown beside the reference.", ge=0, le=1000
    )
    max_new_tokens: int = setting(40, "Longest generated text in tokens.", ge=1, le=65536)
    temperature: Number = setting(0.8, "Temperature of the sampled texts; greedy ones are shown too.", gt=0, le=10)
    top_p: Number = setting(
        0.95, "Nucleus of the sampled texts.", source="Holtzman et al. 2020, arXiv:1904.09751", gt=0, le=1
    )
    seed: Seed = setting(
        0,
        "Seed of the choice of documents, of the sampled texts, of the bootstrap and of the untrained model's weights.",
    )
    precision: Precision = setting(
        "fp32", "Arithmetic of the model; bf16 is for GPUs, where batch_size can change its last digits."
    )
    threads: Threads = THREADS
    batch_size: BatchSize = setting(16, "Sequences that the model takes at once.", placement=True)
    untrained: bool = setting(
        True, "Evaluates a model of base's shape with random weights too, as `untrained`.", placement="tasks"
    )


class StageSettings(Settings):
    """Finds the data of the public tasks that `evaluate.public` names, checks it, and chooses the items."""


class PublicSettings(Settings):
    """Asks each model public tasks, with the definitions of lm-evaluation-harness. Without `presets` no such step runs."""

    presets: list[PublicTask] = setting(
        [], "The tasks. `core`: the 22 of DCLM's CORE and their centered mean.", unique=True
    )
    data: list[NonEmpty] = setting(
        [],
        "Folders, tar archives (bare, .zst, .gz) or files with the tasks' data as JSON Lines (bare, .zst, .gz), "
        "found by name: docs/stages/evaluate.md#public-tasks.",
        unique=True,
        file=True,
    )
    hub: bool = setting(
        False,
        "Copies what `data` lacks from the Hugging Face hub to the disk first, in a step of its own "
        "(`evaluate.stage`), which needs a network; without code of the data sets. Not for `core`.",
    )
    limit: int | None = setting(None, "Items of a task at most, chosen by hash; null asks all.", ge=1, le=1000000)
    seed: Seed = setting(
        0, "Seed of the choice of items and examples, of the bootstrap and of the untrained model's weights."
    )
    precision: Precision = PRECISION
    threads: Threads = THREADS
    batch_size: BatchSize = setting(
        16, "Sequences that the model takes at once; decides the last digits of log-likelihoods."
    )


class FoundSettings(Settings):
    """Says how much of each evaluation set decontaminate found, and each model's accuracy with these items apart."""


class CurveSettings(Settings):
    """Asks the tasks from held-out text of checkpoints of `base` too, for a learning curve. Without `every` no such step runs."""

    every: int = setting(
        0,
        "Steps of pre-training between the points, of which pretrain.train.keep_every must keep the "
        "checkpoints; 0 draws no curve.",
        ge=0,
        le=1000000000,
    )
    seed: Seed = setting(0, "Seed of the bootstrap.")
    precision: Precision = PRECISION
    threads: Threads = THREADS


class CommonSettings(Settings):
    """Scores the documents that `main` holds out, and asks its items, with the models of every variant. Runs where the run has
    variants.
    """

    enabled: bool = setting(
        True,
        "Compare the variants on what main holds out; false has neither this step, nor corpus.reference and "
        "corpus.heldout.",
    )
    max_bytes: int = setting(
        1000000,
        "Bytes of text to score, as whole documents chosen by hash, the same for every variant.",
        ge=1,
        le=1000000000000,
    )
    context: int | None = setting(None, "Window in tokens; null is the context length of the model.", ge=2, le=1048576)
    carry: Number = setting(0.5, "Share of a window that is text before the tokens it scores.", ge=0, le=0.9)
    seed: Seed = setting(0, "Seed of the choice of documents and of the bootstrap.")
    precision: Precision = PRECISION
    threads: Threads = THREADS
    batch_size: BatchSize = setting(16, "Sequences that the model takes at once.", placement=True)


class GenerateSettings(Settings):
    """Measures what each model writes. Without `questions` and `samples` no such step runs."""

    questions: int = setting(
        0,
        "Held-out questions that each model answers greedily, chosen by hash; compared with their references by "
        "ROUGE, BLEU and chrF.",
        ge=0,
        le=100000,
    )
    samples: int = setting(
        0,
        "Texts that each model samples without a prompt; distinct words, repetition and self-perplexity.",
        ge=0,
        le=100000,
    )
    max_new_tokens: int = setting(64, "Longest text in tokens; at most half of the model's context.", ge=1, le=65536)
    temperature: Number = setting(1.0, "Temperature of the sampled texts.", gt=0, le=10)
    top_p: Number = setting(1.0, "Nucleus of the sampled texts.", gt=0, le=1)
    batch_tokens: int = setting(
        8192,
        "Most tokens of texts that are written at the same time, padded prompts and max_new_tokens counted; at "
        "least one text. It bounds memory, and can move last digits.",
        ge=1,
        le=16777216,
    )
    seed: Seed = setting(0, "Seed of the choice of questions, of the sampled texts and of the bootstrap.")
    precision: Precision = PRECISION
    threads: Threads = THREADS


class JudgeSettings(EndpointSettings):
    """Has a model behind an OpenAI-compatible endpoint score the answers of `evaluate.generate`. Without `model` no such step
    runs.
    """

    prompt: str = setting(
        "Question: {question}\nReference answer: {reference}\nAnswer to judge: {answer}\n\nHow good is the "
        "answer to judge, from 1 (wrong or useless) to 10 (as good as the reference)? Reply with the number "
        "alone.",
        "What the judge is asked, with `{question}`, `{reference}` and `{answer}`. The last number of its reply "
        "is the score (of `7/10` or `7 out of 10` the 7).",
        pattern=r"\{answer\}",
        form="text with {answer}",
    )
    scale: list[Number] = setting(
        [1, 10],
        "Lowest and highest score; a reply with another number, or none, is counted and left out.",
        min_length=2,
        max_length=2,
    )
    max_tokens: int = setting(16, "Longest reply in tokens.", ge=1, le=65536)
    seed: Seed = setting(0, "Seed of the bootstrap.")


class CompareSettings(Settings):
    """Compares all models, two and two, on the items and documents that both answered."""

    confidence: Number = setting(
        0.95,
        "Of the intervals of the differences; a difference whose interval holds 0 is not significant.",
        ge=0.5,
        lt=1,
    )
    resamples: int = setting(2000, "Sets of documents that are drawn for an interval.", ge=100, le=1000000)
    seed: Seed = setting(0, "Seed of these draws.")


class EvaluateSettings(Settings):
    """Tasks from held-out text; held-out loss, the tasks, question answering and samples of each model; all models compared."""

    items: ItemsSettings = section()
    model: ModelSettings = section()
    stage: StageSettings = section()
    public: PublicSettings = section()
    found: FoundSettings = section()
    curve: CurveSettings = section()
    common: CommonSettings = section()
    generate: GenerateSettings = section()
    judge: JudgeSettings = section()
    compare: CompareSettings = section()
