"""The quality classifier: a fastText supervised model with two labels."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.filters.quality.settings import TrainSettings
from crawl2llm.formats import fasttext_models

M_PERTURB = -6  # glibc's malloc.h
POSITIVE, NEGATIVE = "__label__curated", "__label__crawl"


def one_line(text: str) -> str:
    """Text as fastText reads it: one line, lower case, spaces folded, and no word that looks like a label."""
    return " ".join(text.lower().split()).replace("__label__", "label")


@contextmanager
def zeroed_memory() -> Iterator[None]:
    """Within, malloc returns memory filled with zeros (glibc's M_PERTURB; elsewhere nothing changes).

    With one thread fastText initialises a tenth of its input matrix and trains the rest from uninitialised memory
    (densematrix.cc, uniformThread): two runs would not give the same model, and some would end in NaN.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_PERTURB, 0xFF)  # the byte is inverted
    try:
        yield
    finally:
        if mallopt:
            mallopt(M_PERTURB, 0)


class Classifier:
    """text (one line) → probability in [0, 1] that it looks like the curated sources."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @classmethod
    def train(cls, examples: Path, settings: TrainSettings) -> Classifier:
        """Train on a file of `label text` lines. One thread: with more, fastText's weights are not repeatable.

        Raises InputError if training diverges.
        """
        import fasttext

        options = {
            "lr": settings.learning_rate,
            "dim": settings.dimensions,
            "ws": settings.window,
            "epoch": settings.epochs,
            "wordNgrams": settings.word_ngrams,
            "minCount": settings.min_count,
            "bucket": settings.buckets,
            "seed": settings.seed,
        }
        try:
            with zeroed_memory():
                return cls(fasttext.train_supervised(input=str(examples), thread=1, verbose=0, **options))
        except RuntimeError as error:
            raise InputError(
                f"fastText cannot train ({error}); lower quality.train.learning_rate ({options['lr']})"
            ) from error

    @classmethod
    def load(cls, path: Path) -> Classifier:
        """Load a model that `save` wrote. Raises InputError for a file that is none."""
        return cls(fasttext_models.load(path, "the classifier of quality.train"))

    def save(self, path: Path) -> None:
        """Write the model as fastText's own .bin."""
        self.model.save_model(str(path))

    def __call__(self, line: str) -> float:
        """The probability of the label `curated`; 0 for a line without words."""
        predictions = self.model.f.predict(line.rstrip("\n") + "\n", 2, 0.0, "strict")
        return next((min(float(score), 1.0) for score, label in predictions if label == POSITIVE), 0.0)
