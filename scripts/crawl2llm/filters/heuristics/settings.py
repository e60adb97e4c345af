"""The settings of the filter heuristics."""

from typing import Annotated, Literal, get_args

from crawl2llm.core.setting_types import LanguageCode, LanguageLabel, Share
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, section, setting

Family = Literal["gopher_quality", "gopher_repetition", "c4", "fineweb"]


class ScoreSettings(Settings):
    """Measures every document under four families of rules."""

    stop_words: dict[
        LanguageCode,
        Annotated[list[NonEmpty], Allowed(unique=True)],
    ] = setting(
        {},
        "Stop words by language label, in place of the built-in list of that language "
        "(scripts/crawl2llm/text/stop_words.py); an empty list switches the rule off for it.",
    )
    punctuation_as_words: bool = setting(
        False,
        "Whether Gopher's shares and ratios of words count punctuation marks as words, as datatrove does "
        "(gopher_quality_filter.py) and the paper does not.",
    )
    terminal_punctuation: bool = setting(
        False,
        "Whether C4's line removal takes lines without terminal punctuation too.",
        source="Raffel et al. 2020 do; FineWeb, datatrove examples/fineweb.py, does not",
    )
    line_words: int = setting(3, "C4 removes lines with fewer words.", source="Raffel et al. 2020", ge=0, le=100)
    word_length: int = setting(
        1000, "C4 removes lines with a longer word, in characters.", source="tensorflow_datasets text/c4_utils.py", ge=1
    )
    short_line: int = setting(
        30,
        "FineWeb's short line, in characters (Penedo et al. 2024; datatrove fineweb_quality_filter.py). A third "
        "of it in text mostly of Han and kana.",
        ge=0,
    )


class CalibrateSettings(Settings):
    """Derives the thresholds of each language from its own distribution, as FineWeb2 does (Penedo et al. 2025,
    arXiv:2506.20920). Off unless `method` names one.
    """

    method: Literal["mean_std", "quantile", "median_ratio", "tail"] | None = setting(
        None,
        "A language's threshold: as many deviations from the mean as the reference's; dropping the reference's share; "
        "scaled by medians; or dropping the share `tail`.",
    )
    reference: NonEmpty = setting(
        "en", "The language, by the model's label, that the thresholds of heuristics.select were chosen on."
    )
    least: int = setting(
        1000,
        "Fewest documents of a language, and of the reference; with fewer, the thresholds of heuristics.select apply.",
        ge=1,
    )
    tail: Number = setting(
        0.1, "Share of documents that each rule drops under the method tail.", source="FineWeb2's 10Tail", gt=0, lt=1
    )
    rules: list[
        Annotated[
            str,
            Allowed(
                pattern="^[a-z0-9]+(_[a-z]+)?[.][a-z0-9_]+_(min|max)$",
                form="rules such as gopher_quality.mean_word_length_max",
            ),
        ]
    ] = setting(
        [
            "gopher_quality.mean_word_length_min",
            "gopher_quality.mean_word_length_max",
            "gopher_quality.alphabetic_words_min",
            "gopher_repetition.duplicate_lines_max",
            "gopher_repetition.top_2_gram_max",
            "gopher_repetition.top_3_gram_max",
            "gopher_repetition.top_4_gram_max",
            "gopher_repetition.duplicate_5_gram_max",
            "gopher_repetition.duplicate_6_gram_max",
            "gopher_repetition.duplicate_7_gram_max",
            "gopher_repetition.duplicate_8_gram_max",
            "gopher_repetition.duplicate_9_gram_max",
            "gopher_repetition.duplicate_10_gram_max",
            "fineweb.punctuated_lines_min",
            "fineweb.newlines_per_word_max",
        ],
        "The rules whose thresholds are derived; default: FineWeb2's rules by language.",
        source="its repository, configs/*.yml",
        unique=True,
    )


class SelectGopherQuality(Settings):
    """Gopher's quality rules."""

    words_min: int | None = setting(50, "Words. Gopher, Rae et al. 2021, table A1.", ge=0)
    words_max: int | None = setting(100000, "Words. Gopher, Rae et al. 2021, table A1.", ge=0)
    mean_word_length_min: Number | None = setting(
        3, "Mean length of the words, in characters. Gopher, Rae et al. 2021, table A1.", ge=0
    )
    mean_word_length_max: Number | None = setting(
        10, "Mean length of the words, in characters. Gopher, Rae et al. 2021, table A1.", ge=0
    )
    hashes_max: Number | None = setting(0.1, "# per word. Gopher, Rae et al. 2021, table A1.", ge=0)
    ellipses_max: Number | None = setting(0.1, "Ellipses per word. Gopher, Rae et al. 2021, table A1.", ge=0)
    bullet_lines_max: Share | None = setting(
        0.9, "Share of lines that start with a bullet. Gopher, Rae et al. 2021, table A1."
    )
    ellipsis_lines_max: Share | None = setting(
        0.3, "Share of lines that end in an ellipsis. Gopher, Rae et al. 2021, table A1."
    )
    alphabetic_words_min: Share | None = setting(
        0.8, "Share of words with a letter. Gopher, Rae et al. 2021, table A1."
    )
    stop_words_min: int | None = setting(
        2, "Different stop words of the document's language. Gopher, Rae et al. 2021, table A1.", ge=0
    )


class SelectGopherRepetition(Settings):
    """Gopher's repetition rules."""

    duplicate_lines_max: Share | None = setting(
        0.3, "Share of lines that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_paragraphs_max: Share | None = setting(
        0.3, "Share of paragraphs that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_line_characters_max: Share | None = setting(
        0.2, "Share of characters on lines that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_paragraph_characters_max: Share | None = setting(
        0.2, "Share of characters in paragraphs that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    top_2_gram_max: Share | None = setting(
        0.2, "Share of characters in the most frequent 2-gram of words. Gopher, Rae et al. 2021, table A1."
    )
    top_3_gram_max: Share | None = setting(
        0.18, "Share of characters in the most frequent 3-gram of words. Gopher, Rae et al. 2021, table A1."
    )
    top_4_gram_max: Share | None = setting(
        0.16, "Share of characters in the most frequent 4-gram of words. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_5_gram_max: Share | None = setting(
        0.15, "Share of characters in 5-grams of words that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_6_gram_max: Share | None = setting(
        0.14, "Share of characters in 6-grams of words that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_7_gram_max: Share | None = setting(
        0.13, "Share of characters in 7-grams of words that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_8_gram_max: Share | None = setting(
        0.12, "Share of characters in 8-grams of words that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_9_gram_max: Share | None = setting(
        0.11, "Share of characters in 9-grams of words that occurred before. Gopher, Rae et al. 2021, table A1."
    )
    duplicate_10_gram_max: Share | None = setting(
        0.1, "Share of characters in 10-grams of words that occurred before. Gopher, Rae et al. 2021, table A1."
    )


class SelectC4(Settings):
    """C4's rules; its line rules as shares of the document."""

    lorem_ipsum_max: int | None = setting(0, "Occurrences of lorem ipsum. C4, Raffel et al. 2020.", ge=0)
    curly_brackets_max: int | None = setting(0, "Opening curly brackets. C4, Raffel et al. 2020.", ge=0)
    javascript_lines_max: Share | None = setting(
        None, "Share of characters on lines that say javascript. C4 removes the lines; it sets no share."
    )
    policy_lines_max: Share | None = setting(
        None, "Share of characters on lines with a cookie or privacy phrase. C4 removes the lines; it sets no share."
    )
    few_words_lines_max: Share | None = setting(
        None, "Share of characters on lines of fewer than `line_words` words. C4 removes the lines; it sets no share."
    )
    long_word_lines_max: Share | None = setting(
        None,
        "Share of characters on lines with a word longer than `word_length`. C4 removes the lines; it sets no share.",
    )
    unterminated_lines_max: Share | None = setting(
        None, "Share of characters on lines without terminal punctuation. C4 removes the lines; it sets no share."
    )
    removed_lines_max: Share | None = setting(
        None, "Share of characters on all lines that C4 would remove; it sets no share."
    )
    sentences_min: int | None = setting(5, "Sentences left after C4's line removal. C4, Raffel et al. 2020.", ge=0)


class SelectFineweb(Settings):
    """FineWeb's rules."""

    punctuated_lines_min: Share | None = setting(
        0.12,
        "Share of lines that end in punctuation. FineWeb, Penedo et al. 2024; datatrove fineweb_quality_filter.py.",
    )
    short_lines_max: Share | None = setting(
        0.67,
        "Share of lines of at most `short_line` characters. FineWeb, Penedo et al. 2024; datatrove "
        "fineweb_quality_filter.py.",
    )
    duplicate_line_characters_max: Share | None = setting(
        0.01,
        "Share of the lines' characters on lines that occurred before. FineWeb, Penedo et al. 2024; datatrove "
        "fineweb_quality_filter.py.",
    )
    newlines_per_word_max: Number | None = setting(
        0.3,
        "Line breaks per token, punctuation counted. FineWeb, Penedo et al. 2024; datatrove fineweb_quality_filter.py.",
        ge=0,
    )


class SelectSettings(Settings):
    """Thresholds on the measures; null switches a rule off. `_min` drops below, `_max` above."""

    families: list[Family] = setting(list(get_args(Family)), "Families whose rules drop documents.", unique=True)
    languages: dict[
        LanguageLabel,
        dict[
            Family,
            dict[
                Annotated[str, Allowed(pattern="^[a-z0-9_]+_(min|max)$", form="rules such as mean_word_length_max")],
                Annotated[Number | None, Allowed(ge=0)],
            ],
        ],
    ] = setting(
        {},
        "Thresholds for some languages, by label, in place of those below, of heuristics.calibrate, and of the "
        "looser ones that Korean, Thai, Lao and Chinese have (docs/filters/heuristics.md), as in `{fi: "
        "{gopher_quality: {mean_word_length_max: 14}}}`; null switches a rule off for the language.",
        unless_default=True,
    )
    gopher_quality: SelectGopherQuality = section()
    gopher_repetition: SelectGopherRepetition = section()
    c4: SelectC4 = section()
    fineweb: SelectFineweb = section()


class HeuristicsSettings(Settings):
    """Heuristics on the text, measured on every document and compared with thresholds."""

    score: ScoreSettings = section()
    calibrate: CalibrateSettings = section()
    select: SelectSettings = section()
