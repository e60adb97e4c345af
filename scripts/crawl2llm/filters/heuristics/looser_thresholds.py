"""Thresholds of the heuristics for languages that those for all do not suit.

Apart from the rules: a plan reads them, and no settings.
"""

from __future__ import annotations

Thresholds = dict[str, float | None]  # by rule, as `gopher_quality.words_min`; None switches it off
# Thresholds for all were chosen on English, and drop good text of these languages (measured: docs/filters/heuristics.md). A threshold here
# holds where it is the looser one.
LOOSER: dict[str, Thresholds] = {
    # Korean writes syllables, two or three to a word. FineWeb2's repository, configs/kor_Hang.yml: 1.
    "ko": {"gopher_quality.mean_word_length_min": 1},
    # Thai and Lao end sentences with a space. FineWeb2, configs/tha_Thai.yml: 0.
    "th": {"fineweb.punctuated_lines_min": None},
    "lo": {"fineweb.punctuated_lines_min": None},
    # Chinese joins by commas what English writes as sentences. 3 is the least of C4's own code (tensorflow_datasets, text/c4_utils.py).
    "zh": {"c4.sentences_min": 3},
}
