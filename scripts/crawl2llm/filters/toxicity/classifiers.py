"""fastText classifiers by path, such as Dolma's of hate speech and adult content (arXiv:2402.00159, on content filtering)."""

from __future__ import annotations

from crawl2llm.core.errors import InputError
from crawl2llm.filters.toxicity.settings import ScoreClassifier
from crawl2llm.formats import fasttext_models
from crawl2llm.formats.fasttext_models import PREFIX

KEY = "toxicity.score.classifiers"


class Classifier:
    """text → probability of one label. entry: {name, path, label} of `toxicity.score.classifiers`."""

    def __init__(self, number: int, entry: ScoreClassifier) -> None:
        self.name, self.label = entry.name, PREFIX + entry.label.removeprefix(PREFIX)
        self.model = fasttext_models.load(entry.path, f"{KEY}[{number}].path")
        if self.label not in (labels := self.model.get_labels()):
            raise InputError(
                f"{KEY}[{number}].label is {entry.label!r}; {entry.path} has {', '.join(sorted(labels)[:20])}"
            )
        self.labels = len(labels)

    def __call__(self, text: str) -> float:
        """The label's probability, from 0 to 1; 0 for a text without words."""
        line = " ".join(text.split())
        predictions = self.model.f.predict(line + "\n", self.labels, 0.0, "strict") if line else []
        return next((min(float(score), 1.0) for score, label in predictions if label == self.label), 0.0)
