"""Texts as KenLM reads them, and the perplexity of documents under one model by language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from crawl2llm.core import language_codes
from crawl2llm.core.errors import InputError
from crawl2llm.filters.quality import tools
from crawl2llm.text.characters import tokenize
from crawl2llm.text.normal_forms import normal_form

# Signs that many scripts write in forms of their own, as ASCII: the set of cc_net's text_normalizer.py.
SIGNS = str.maketrans(
    {
        "，": ",", "。": ".", "、": ",", "„": '"', "”": '"', "“": '"', "«": '"', "»": '"', "」": '"', "「": '"', "《": '"',
        "》": '"', "´": "'", "∶": ":", "：": ":", "？": "?", "！": "!", "（": "(", "）": ")", "；": ";", "–": "-", "—": " - ", "．": ". ",
        "～": "~", "’": "'", "…": "...", "━": "-", "〈": "<", "〉": ">", "【": "[", "】": "]", "％": "%", "►": "-",
    }
)  # fmt: skip
DIGIT = re.compile(r"\d")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def normalize_line(line: str) -> str:
    """A line as cc_net normalises it: lower case, without accents, digits as 0, signs as ASCII, no control characters."""
    line = normal_form("NFD", line.strip().lower())
    line = "".join(sign for sign in line if unicodedata.category(sign) != "Mn")
    return CONTROL.sub("", DIGIT.sub("0", line).translate(SIGNS)).strip()


def spaced_words(line: str) -> str:
    """A line as words, signs and, in scripts without spaces, characters, with spaces between them."""
    return " ".join(tokenize(normalize_line(line)))


def sentencepiece_speller(model: Path) -> Callable[[str], str]:
    """What makes a line the pieces of a SentencePiece model, with spaces between them, as cc_net's models are trained.

    Raises InputError for a file that is no such model.
    """
    import sentencepiece

    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"quality.kenlm.models: {model} is not a SentencePiece model ({error}); fetch it again"
        ) from error
    return lambda line: " ".join(processor.encode(normalize_line(line), out_type=str))


def spelled_lines(text: str, spell: Callable[[str], str]) -> Iterator[str]:
    """The lines of a document that are not empty, each as the model reads it, on one line."""
    for line in text.split("\n"):
        if spelling := spell(line):
            yield " ".join(spelling.split())


class Models:
    """The language models of a folder (scorers.language_model_files), with the SentencePiece model of a language where
    `<language>.sp.model` is there.
    """

    def __init__(self, paths: dict[str, Path]) -> None:
        self.paths = paths
        spelling = {name: path.parent / f"{name}.sp.model" for name, path in paths.items()}
        self.spellers = {
            name: sentencepiece_speller(path) if path.is_file() else spaced_words for name, path in spelling.items()
        }

    def perplexity_by_id(
        self, documents: Iterable[tuple[str, str, str]], folder: Path, progress: Callable[[], None] = lambda: None
    ) -> dict[str, float]:
        """id → perplexity, of (id, language, text); a language without a model, and a text without a line, have none.

        Of a document, as cc_net's (perplexity.py): 10 to the power of minus the sum of its lines' log10 probabilities, divided by
        their words and line ends. folder: for the lines, a file for each language, since the programs read files.
        """
        perplexities: dict[str, float] = {}
        sizes: dict[str, list[tuple[str, list[int]]]] = {name: [] for name in self.paths}
        files: dict[str, Any] = {}
        try:
            for name, label, text in documents:
                progress()
                language = next((code for code in language_codes.label_names(label) if code in self.paths), None)
                if language is None:
                    continue
                if language not in files:
                    files[language] = (folder / f"{language}.txt").open("w", encoding="utf-8")
                line_lengths = []
                for line in spelled_lines(text, self.spellers[language]):
                    files[language].write(line + "\n")
                    line_lengths.append(line.count(" ") + 2)  # its words and its end
                sizes[language].append((name, line_lengths))
        finally:
            for file in files.values():
                file.close()
        for language in files:
            scores = tools.line_log_probabilities(
                self.paths[language], folder / f"{language}.txt", folder / f"{language}.out"
            )
            for name, line_lengths in sizes[language]:
                total = sum(next(scores) for _ in line_lengths)
                if line_lengths:
                    perplexities[name] = 10.0 ** (-total / sum(line_lengths))
        return perplexities
