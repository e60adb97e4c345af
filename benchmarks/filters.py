"""What each filter's score costs a document, on the same documents, in one run, on one core: beside its floor and datatrove's equivalent.

    python -m benchmarks.filters                       # writes benchmarks/results/filters.json
    python -m benchmarks.filters --only pii code

Input: JSON Lines with `text`, also zstd-compressed; C4 and HPLT samples (English and Russian) of $CRAWL2LLM_DATA (else ../shared/data)
unless --input names others. datatrove is not one of the project's packages: into an environment of its own, with those of the filters
(envs/data.yaml), and run with that; without it the project's side alone is measured.

A filter is one entry of FILTERS: what is timed on our side (all that score does with a text, without Parquet), its floor (what no
implementation in Python can do without: one pass of its kind over the text), and the peer's filter. Seconds are CPU seconds of the process,
the median of --rounds; the sides take turns. Languages are the files' own, so that no side pays for finding them. Deduplication and
extraction have benchmarks of their own.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT

SAMPLES = {"c4_demo": "en", "hplt-en_100": "en", "hplt-en_101": "en", "hplt-ru_10": "ru"}
Run = Callable[[str, str], Any]  # (text, language) → whatever it finds


@dataclass(frozen=True)
class Timed:
    """How a filter is timed. Each function makes a run; peer: None where datatrove has no equivalent."""

    ours: Callable[[], Run]
    floor: Callable[[], Run]
    peer: Callable[[], Run] | None
    what: str  # what the peer does, and what the floor is


def _pii() -> Run:
    from crawl2llm.filters.pii.detect import Detector

    return Detector()


def _pii_of_the_peer() -> Run:
    """The kinds that the peer's has."""
    from crawl2llm.filters.pii.detect import Detector

    return Detector(["email_address", "ip_address"])


def _encoded() -> Run:
    import re2

    never = re2.compile("\\x{1}\\x{2}\\x{3}[0-9]")
    return lambda text, _: never.search(text.encode())


def _datatrove_pii() -> Run:
    from datatrove.pipeline.formatters import PIIFormatter

    made = PIIFormatter()
    return lambda text, _: made.format(text)


LISTED = 403  # entries, as LDNOOBW's English list has


def _listed() -> Path:
    """A folder with a list for each language: words that no text has, as most texts have none of a real list; a fifth are phrases."""
    folder = Path(mkdtemp(prefix="listed-"))
    for language, letters in (("en", "bdfglmnprstvz"), ("ru", "бвгджзклмнпрст")):
        words = [
            "".join(letters[number // len(letters) ** place % len(letters)] * 2 for place in range(3))
            for number in range(LISTED)
        ]
        entries = [f"{word} {words[number // 2]}" if number % 5 == 0 else word for number, word in enumerate(words)]
        (folder / language).write_text("\n".join(entries), encoding="utf-8")
    return folder


def _toxicity() -> Run:
    from crawl2llm.filters.toxicity.terms import Lists

    return Lists([str(_listed())], [])


def _words() -> Run:
    from crawl2llm.filters.toxicity.terms import WORD

    return lambda text, _: WORD.findall(text.casefold())


def _datatrove_words() -> Run:
    from datatrove.data import Document
    from datatrove.pipeline.filters import c4_filters

    folder = _listed()
    # The same lists, from the disk: nothing is fetched.
    c4_filters.cached_asset_path_or_download = lambda url, **_: str(folder / ("ru" if url.endswith("ru") else "en"))
    made = c4_filters.C4BadWordsFilter()
    return lambda text, language: made.filter(Document(text=text, id="", metadata={"language": language}))


def _sourcecode() -> Run:
    from crawl2llm.filters.sourcecode.measures import measure_file

    return lambda text, _: measure_file(text)


METADATA = json.dumps({"title": "A page", "file": "a.warc.gz", "licence": "cc-by-4.0", "licence_from": "rel"})


def _licence() -> Run:
    from crawl2llm.filters.licence import names

    return lambda *_: names.licence_of(json.loads(METADATA))


def _heuristics() -> Run:
    from crawl2llm.filters.heuristics.measures import Limits, measure_document
    from crawl2llm.text.stop_words import stop_words_by_language

    limits, stop_words = Limits(), stop_words_by_language({})
    return lambda text, language: measure_document(text, stop_words.get(language), limits)


def _tokens() -> Run:
    from crawl2llm.text.characters import tokenize

    return lambda text, _: tokenize(text)


def _datatrove_heuristics() -> Run:
    from benchmarks.heuristics import datatrove

    made = datatrove()
    return lambda text, _: made([text])


# As datatrove's C4QualityFilter has them.
LINES = {
    **dict.fromkeys(("citations", "javascript", "policy"), True),
    "terminal_punctuation": False,
    "words_min": 3,
    "word_length_max": 1000,
}


def _lines() -> Run:
    from crawl2llm.filters.lines import rules
    from crawl2llm.filters.lines.settings import ScoreSettings
    from crawl2llm.formats.spans import EditedText

    settings = ScoreSettings.model_validate(LINES)
    return lambda text, _: rules.count_sentences(EditedText(text, rules.removed_spans(text, settings)).text)


def _datatrove_lines() -> Run:
    from datatrove.data import Document
    from datatrove.pipeline.filters import C4QualityFilter

    made = C4QualityFilter(filter_no_terminal_punct=False)
    return lambda text, _: made.filter(Document(text=text, id=""))


FILTERS: dict[str, Timed] = {
    "heuristics": Timed(
        _heuristics,
        _tokens,
        _datatrove_heuristics,
        "four families, as datatrove's four filters, one after the other; floor: the tokens of the text",
    ),
    "lines": Timed(
        _lines,
        lambda: lambda text, _: text.split("\n"),
        _datatrove_lines,
        "C4's line rules, as datatrove's C4QualityFilter; floor: the lines of the text",
    ),
    "pii": Timed(_pii, _encoded, None, "all seven kinds; floor: the text in UTF-8, and one pass of RE2 over it"),
    "pii, e-mail and IP": Timed(
        _pii_of_the_peer,
        _encoded,
        _datatrove_pii,
        "as datatrove's PIIFormatter, which has these two kinds; floor: as of pii",
    ),
    "toxicity": Timed(
        _toxicity,
        _words,
        _datatrove_words,
        f"lists of {LISTED} entries, as datatrove's C4BadWordsFilter; floor: the words of the text in small letters",
    ),
    "sourcecode": Timed(
        _sourcecode,
        lambda: lambda text, _: [len(line) for line in text.split("\n")],
        None,
        "as if all were code; floor: the lengths of the lines",
    ),
    "licence": Timed(_licence, lambda: lambda *_: json.loads(METADATA), None, "a document's metadata; floor: its JSON"),
}


def documents(path: Path) -> list[str]:
    """The texts of a JSON Lines file, plain or zstd."""
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".zst":
            import zstandard

            stream = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(raw)
        return [json.loads(line)["text"] for line in io.TextIOWrapper(stream, encoding="utf-8")]


def timed(run: Run, texts: list[tuple[str, str]]) -> float:
    """CPU seconds of a run over all documents."""
    start = time.process_time()
    for text, language in texts:
        run(text, language)
    return time.process_time() - start


def measured(sides: dict[str, Run], texts: list[tuple[str, str]], rounds: int) -> dict[str, dict[str, float]]:
    """By side: microseconds a document at the median, and megabytes of UTF-8 a second."""
    for run in sides.values():  # warm up: models, lists and caches
        timed(run, texts[:50])
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            seconds[name].append(timed(sides[name], texts))
    size = sum(len(text.encode()) for text, _ in texts)
    return {
        name: {
            "microseconds_per_document": round(statistics.median(all_) / len(texts) * 1e6, 1),
            "megabytes_per_second": round(size / statistics.median(all_) / 1e6, 1),
        }
        for name, all_ in seconds.items()
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--input", type=Path, nargs="+", help="JSON Lines files, language as --language says")
    parser.add_argument("--language", default="en", help="of the files of --input")
    parser.add_argument("--only", nargs="+", choices=list(FILTERS), default=list(FILTERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=30_000, help="leave out documents with more characters")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "filters.json")
    args = parser.parse_args(argv)
    files = (
        {path: args.language for path in args.input}
        if args.input
        else {data / "corpora" / f"{name}.jsonl.zst": language for name, language in SAMPLES.items()}
    )
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}; give --input, or the data's folder in CRAWL2LLM_DATA")
    texts = [
        (text, language)
        for path, language in files.items()
        for text in documents(path)
        if 0 < len(text) <= args.longest
    ]
    peer = find_spec("datatrove") is not None
    if not peer:
        print("datatrove is not installed here: ours alone is measured. How to install it: --help")
    found = {}
    for name in args.only:
        how = FILTERS[name]
        sides = {"ours": how.ours(), "floor": how.floor()} | ({"datatrove": how.peer()} if peer and how.peer else {})
        result: dict[str, Any] = dict(measured(sides, texts, args.rounds))
        if "datatrove" in result:
            faster = result["datatrove"]["microseconds_per_document"] / result["ours"]["microseconds_per_document"]
            result["times_as_fast"] = round(faster, 2)
        found[name] = {**result, "what": how.what}
        print(name, json.dumps(found[name]))
    if args.output.is_file():  # of those that were not measured this time, what was
        found = {**json.loads(args.output.read_text(encoding="utf-8"))["filters"], **found}
    result = {
        "documents": len(texts),
        "bytes": sum(len(text.encode()) for text, _ in texts),
        "processor": processor(),
        "versions": versions("datatrove", "google-re2", "phonenumbers", "python-stdnum"),
        "filters": {name: found[name] for name in FILTERS if name in found},
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
