"""The settings of the stage tokenize."""

from typing import Literal

from crawl2llm.core.settings import Auto, Commit, NonEmpty, Settings, section, setting


class ReadySettings(Settings):
    """A ready tokenizer instead of a trained one. What decides is what its files hold, and not where they lie."""

    path: NonEmpty | None = setting(
        None,
        "tokenizer.json, a SentencePiece .model, or a folder with one of them, or with a .tiktoken file and pattern.txt, its regular "
        "expression. model, vocabulary, digits and marks keep their defaults beside it.",
        placement=True,
    )
    hub: NonEmpty | None = setting(
        None,
        "In place of `path`: the name on the Hugging Face hub of a tokenizer, or a model, that `crawl2llm fetch-model` has fetched.",
        placement=True,
    )
    revision: Commit | None = setting(None, "Of `hub`: the commit.", placement=True)


class TrainSettings(Settings):
    """Trains the tokenizer on a sample."""

    model: Literal["bpe", "unigram"] = setting(
        "bpe",
        "How entries are chosen: byte-level BPE, or byte-level Unigram (arXiv:1804.10959), which trains and "
        "encodes more slowly.",
    )
    vocabulary: int | Auto = setting(
        "auto",
        "Entries of the vocabulary with the 256 bytes and 16 special tokens; auto is 1,024 to 32,768, by the "
        "corpus's bytes (docs/stages/tokenize.md).",
        ge=272,
        le=1000000,
    )
    digits: int = setting(
        3, "Numbers are split into groups of up to this many digits; 0 leaves them whole.", ge=0, le=9
    )
    marks: Literal["separate", "letters"] = setting(
        "separate",
        "Whether combining marks (Unicode's category M) part words, as in GPT-2's expression, or belong to "
        "them. `letters` for scripts with vowel signs, such as Hindi, Bengali and Thai "
        "(docs/stages/tokenize.md).",
        unless_default=True,
    )
    train_bytes: int = setting(1000000000, "Bytes of training text to sample.", ge=1000)
    seed: int = setting(0, "Seed of the sample.", ge=0)
    ready: ReadySettings = section(placement=True, alias="from")


class EncodeSettings(Settings):
    """Encodes every shard."""

    engine: Literal["auto", "tiktoken", "tokenizers"] = setting(
        "auto",
        "Encoder; all give the same ids. auto: tiktoken, which is faster, if it is proven equal for this tokenizer, "
        "else tokenizers.",
    )


class ReencodeSettings(Settings):
    """Encodes the corpus with the tokenizer of a published model, for what reads text in its tokens. The engine is `tokenizers`."""


class CompareSettings(Settings):
    """Measures a ready tokenizer beside one of as many entries that is trained on the corpus, as tokenize.train would. No settings."""


class TokenizeSettings(Settings):
    """A byte-level tokenizer, and the corpus as token ids."""

    train: TrainSettings = section()
    encode: EncodeSettings = section()
    compare: CompareSettings = section()
    reencode: ReencodeSettings = section()
