"""Precision and recall of the filter `pii`, by kind and by language, on a labelled set of lines.

    python -m benchmarks.personal_data                 # writes benchmarks/results/personal_data.json

Input: lines of a language's code, a tab and a text in which `[[kind|value]]` marks what is to be found; tests/unit/filters/pii/labelled.txt
unless --input names another file. All values in it are invented or in ranges that are reserved for examples. A `·` in a value is left out:
so no key stands in the file as a whole. Every second line is held out: the expressions were not changed after a look at these.

A find counts as right where it has the label's kind and place; one of another place is a false alarm, and the label is missed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl2llm.core.root import ROOT
from crawl2llm.filters.pii.detect import Detector
from crawl2llm.filters.pii.kinds import KINDS

LABELLED = ROOT / "tests" / "unit" / "filters" / "pii" / "labelled.txt"
MARK = re.compile(r"\[\[(\w+)\|(.+?)\]\]")
Place = tuple[int, int, str]


@dataclass(frozen=True)
class Line:
    """A text and its labels: (start, end, kind). number: of the line, from 0."""

    number: int
    language: str
    text: str
    labels: frozenset[Place]


def read(path: Path = LABELLED) -> list[Line]:
    """The lines of a labelled file; empty ones and those that begin with # are left out."""
    out = []
    for row in path.read_text(encoding="utf-8").splitlines():
        if not row.strip() or row.startswith("#"):
            continue
        language, _, marked = row.partition("\t")
        parts, labels, at, length = list[str](), set[Place](), 0, 0
        for match in MARK.finditer(marked):
            value = match[2].replace("·", "").replace("\\n", "\n")
            parts += [marked[at : match.start()], value]
            length += match.start() - at
            labels.add((length, length + len(value), match[1]))
            length, at = length + len(value), match.end()
        out.append(Line(len(out), language, "".join([*parts, marked[at:]]), frozenset(labels)))
    return out


def found(detect: Detector, line: Line) -> set[Place]:
    """What the filter finds in a line."""
    return {(one.start, one.end, one.kind) for one in detect(line.text, line.language)}


def measured(lines: Iterable[Line], detect: Detector) -> dict[str, dict[str, Any]]:
    """By kind and as `all`: labels, precision and recall; None where there is nothing to divide by."""
    right, false, missed = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        got = found(detect, line)
        right.update(kind for *_, kind in got & line.labels)
        false.update(kind for *_, kind in got - line.labels)
        missed.update(kind for *_, kind in line.labels - got)
    out = {kind: _rates(right[kind], false[kind], missed[kind]) for kind in KINDS}
    return {**out, "all": _rates(right.total(), false.total(), missed.total())}


def _rates(right: int, false: int, missed: int) -> dict[str, Any]:
    return {
        "labels": right + missed,
        "precision": round(right / (right + false), 4) if right + false else None,
        "recall": round(right / (right + missed), 4) if right + missed else None,
    }


def parts(lines: list[Line]) -> dict[str, list[Line]]:
    """The lines that the expressions were written by, and those that are held out, by turns."""
    return {
        "seen": [line for line in lines if line.number % 2 == 0],
        "heldout": [line for line in lines if line.number % 2],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, default=LABELLED, help="file of labelled lines")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "personal_data.json")
    parser.add_argument("--show", choices=["seen", "heldout"], help="print the lines of this part that are wrong")
    args = parser.parse_args(argv)
    lines, detect = read(args.input), Detector()
    both = parts(lines)
    for line in both.get(args.show, []):
        if (got := found(detect, line)) != line.labels:
            wrong = [(sign, kind, line.text[start:end]) for sign, some in (("+", got - line.labels), ("-", line.labels - got))
                     for start, end, kind in sorted(some)]  # fmt: skip
            print(line.language, repr(line.text), *wrong)
    languages = sorted({line.language for line in lines})
    result = {
        "lines": len(lines),
        **{name: measured(some, detect) for name, some in both.items()},
        "by_language": {
            name: measured((line for line in lines if line.language == name), detect)["all"] for name in languages
        },
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
