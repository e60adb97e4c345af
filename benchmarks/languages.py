"""What each filter drops of good pages, by language, at the default thresholds.

    CRAWL2LLM_DATA=… python -m benchmarks.languages --results results/main      # writes benchmarks/results/languages.json, prints tables

Three sets of texts that a filter should keep, of $CRAWL2LLM_DATA (else ../shared/data):

- `gold`: the main text of crawled pages as people marked it (crawl/*.gold_text.jsonl.zst), in 5 languages.
- `pages`: the labelled originals of the same crawl as the run `--results` extracted them, in 22 languages; without it this set is left out.
- `declaration`: the Universal Declaration of Human Rights in each language with stop words, in passages of a sixth that start at every
  twenty-fourth of its lines: the same content, so that languages differ by nothing else.

Dropped are, of each filter by itself: `language` (another label than the page's, or a low score), every family and rule of `heuristics`,
`lines` (its select; `characters` is the share of characters that it takes out of the texts that stay), and `quality` (the top half under
a classifier that is trained on English curated text against half of the same pages). `against` in the table is a language's
share over the English one; `more than twice` names the rules where it exceeds 2 and at least two documents are dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import gold
from crawl2llm.chain import config
from crawl2llm.core.root import ROOT
from crawl2llm.filters.framework.columns import Columns, one_document
from crawl2llm.filters.framework.rules import failed_rules
from crawl2llm.filters.heuristics import select as heuristics_select
from crawl2llm.filters.heuristics.measures import Limits, measure_document
from crawl2llm.filters.heuristics.rules import FAMILIES
from crawl2llm.filters.heuristics.settings import HeuristicsSettings
from crawl2llm.filters.language import select as language_select
from crawl2llm.filters.language.settings import SelectSettings
from crawl2llm.filters.lines import rules as lines
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.filters.quality.classifier import NEGATIVE, POSITIVE, Classifier, one_line
from crawl2llm.filters.quality.select import top_fraction_threshold
from crawl2llm.filters.quality.settings import TrainSettings
from crawl2llm.formats import spans
from crawl2llm.formats.documents import rows, uniform_hash
from crawl2llm.formats.language_identifier import Identifier, model_path
from crawl2llm.text.stop_words import STOP_WORDS, stop_words_by_language

TWICE = 2.0
# Files of the Declaration by lid.176's label.
DECLARATIONS = """
af=afr ar=arb bg=bul bn=ben ca=cat cs=ces da=dan de=deu el=ell_monotonic en=eng es=spa et=est eu=eus fa=pes_1 fi=fin
fr=fra gl=glg he=heb hi=hin hr=hrv hu=hun hy=hye id=ind it=ita ja=jpn ka=kat kk=kaz ko=kor lt=lit lv=lav mk=mkd
ms=mly_latn nl=nld no=nob pl=pol pt=por_BR ro=ron ru=rus sh=bos_latn sk=slk sl=slv sq=als sr=srp_cyrl sv=swe sw=swh
th=tha tl=tgl tr=tur uk=ukr ur=urd vi=vie zh=cmn_hans
"""
Documents = list[tuple[str, str]]  # (language, text)


def paragraphs(markup: str) -> str:
    """Gold text as a document: a line for each paragraph."""
    return "\n".join(line for part in markup.split("</p>") if (line := " ".join(gold.TAG.sub(" ", part).split())))


def gold_texts(crawl: Path) -> Documents:
    """The set `gold`, one document for each original."""
    labels = gold.labels(next(crawl.glob("*.gold.tsv")))
    raw = gold.texts(next(crawl.glob("*.gold_text.jsonl.zst")), as_text=paragraphs)
    return [(labels[name]["lang"], text) for name, text in raw.items() if labels[name]["variant"] == "original"]


def pages(results: Path, crawl: Path) -> Documents:
    """The set `pages`: the originals of the labelled crawl as a run extracted them."""
    labels = gold.labels(next(crawl.glob("*.gold.tsv")))
    found = []
    for path in gold.shards(results, "ingest/extract"):
        for row in rows(path, ["text", "metadata"]):
            label = labels.get(json.loads(row["metadata"]).get("record_id", ""), {})
            if label.get("variant") == "original":
                found.append((label["lang"], row["text"]))
    return found


def passages(archive: Path) -> Documents:
    """The set `declaration`."""
    found = []
    with zipfile.ZipFile(archive) as opened:
        for language, name in (pair.split("=") for pair in DECLARATIONS.split()):
            text = opened.read(f"udhr2/{name}.txt").decode().split("---", 1)[-1]
            kept = [line for line in text.split("\n") if line.strip()]
            size, step = max(1, len(kept) // 6), max(1, len(kept) // 24)
            starts = range(0, len(kept) - size + 1, step)
            found += [(language, "\n".join(kept[start : start + size])) for start in starts]
    return found


def classifier(curated: Iterator[str], documents: Documents, settings: dict[str, Any]) -> Classifier:
    """A quality classifier of curated text against every other document, with the default settings but fewer buckets."""
    with tempfile.TemporaryDirectory() as folder:
        examples = Path(folder) / "train.txt"
        with examples.open("w", encoding="utf-8") as out:
            out.writelines(f"{POSITIVE} {one_line(text)}\n" for text in curated)
            crawled = (text for number, (_, text) in enumerate(documents) if uniform_hash(0, str(number)) < 0.5)
            out.writelines(f"{NEGATIVE} {one_line(text)}\n" for text in crawled)
        return Classifier.train(examples, TrainSettings.model_validate({**settings, "buckets": 200_000}))


def english(corpora: Path) -> Iterator[str]:
    """Curated English text in documents: articles of WikiText-2."""
    import zstandard

    raw = (corpora / "wikitext-2-valid.txt.zst").read_bytes()
    text = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(raw).read().decode()
    yield from (part for part in re.split(r"\n = [^=\n]+ = \n", text) if len(part) > 500)


class Filters:
    """Every filter by itself at the default thresholds."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.line_rules = ScoreSettings.model_validate(settings["lines"]["score"])
        self.identify = Identifier(model_path(settings["language"]["score"]["model"]))
        self.stop_words = stop_words_by_language(settings["heuristics"]["score"]["stop_words"])
        self.thresholds = HeuristicsSettings.model_validate(settings["heuristics"]).select
        self.heuristics_rules = heuristics_select.rules(self.thresholds)

    def __call__(self, language: str, text: str) -> tuple[set[str], float]:
        """(the rules that drop a text of this language, the share of its characters that `lines` takes out)."""
        found, score = self.identify(text)
        signals = Columns([pa.table({"language": [found], "score": [score]})], np.zeros(1, np.int64), [found])
        settings = SelectSettings.model_validate({**self.settings["language"]["select"], "languages": [language]})
        (failures,) = failed_rules(language_select.rules(settings), signals, settings)
        failed = {f"language.{failure.rule}" for failure in failures}
        measures = measure_document(text, self.stop_words.get(found), Limits())
        (failures,) = failed_rules(self.heuristics_rules, one_document(measures, found), self.thresholds)
        failed |= {failure.rule for failure in failures}
        taken = list(lines.removed_spans(text, self.line_rules))
        left = spans.EditedText(text, taken).text
        if lines.count_sentences(left) < self.settings["lines"]["select"]["sentences_min"]:
            failed.add("lines.sentences_min")
        return failed, 1 - len(left) / max(len(text), 1)


def families(failed: set[str]) -> set[str]:
    """The filters and families of rules, and `heuristics` for any of its families."""
    found = {rule.partition(".")[0] for rule in failed}
    return found | ({"heuristics"} if found & set(FAMILIES) else set())


def measured(documents: Documents, judge_: Filters, quality: Classifier | None) -> dict[str, Any]:
    """By language: documents, the share that each filter, family and rule drops, and what `lines` takes out of the others."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    taken: dict[str, list[float]] = defaultdict(list)
    scores = [quality(one_line(text)) for _, text in documents] if quality else []
    import numpy as np

    least = top_fraction_threshold(lambda: [np.array(scores)], 0.5) if quality else 0.0
    for number, (language, text) in enumerate(documents):
        failed, share = judge_(language, text)
        if quality and scores[number] < least:
            failed.add("quality.fraction")
        counts[language].update(["documents", *failed, *families(failed)])
        if "lines.sentences_min" not in failed:
            taken[language].append(share)
    found = {}
    for language, number_of in sorted(counts.items(), key=lambda item: (-item[1]["documents"], item[0])):
        total = number_of.pop("documents")
        shares = {name: round(number / total, 4) for name, number in sorted(number_of.items())}
        found[language] = {
            "documents": total,
            "dropped": {name: share for name, share in shares.items() if "." not in name},
            "rules": {name: share for name, share in shares.items() if "." in name},
            "characters": round(sum(taken[language]) / max(len(taken[language]), 1), 4),
        }
    for language, one in found.items():
        one["more than twice"] = sorted(
            name
            for kind in ("dropped", "rules")
            for name, share in one[kind].items()
            if language != "en"
            and share * one["documents"] >= 2
            and share > TWICE * found.get("en", {kind: {}})[kind].get(name, 0.0)
        )
    return found


COLUMNS = ("language", "heuristics", *FAMILIES, "lines", "quality")


def table(found: dict[str, Any]) -> str:
    """A set as a Markdown table: percent dropped of each language's documents."""
    out = ["| | documents | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for language, one in found.items():
        cells = (f"{100 * one['dropped'].get(name, 0.0):.0f}" for name in COLUMNS)
        out.append(f"| {language or 'not labelled'} | {one['documents']} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data, help="folder with crawl/, corpora/ and langid/")
    parser.add_argument("--results", type=Path, help="results of a run over crawl/*.warc.gz that kept every language")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "languages.json")
    args = parser.parse_args(argv)
    if not (args.data / "crawl").is_dir():
        parser.error(f"no such folder: {args.data / 'crawl'}; give --data, or CRAWL2LLM_DATA")
    settings = config.validate({})
    crawl = args.data / "crawl"
    sets = {"gold": gold_texts(crawl)}
    if args.results:
        sets["pages"] = pages(args.results, crawl)
    sets["declaration"] = passages(args.data / "langid" / "udhr2.zip")
    assert {pair.split("=")[0] for pair in DECLARATIONS.split()} == set(STOP_WORDS)
    judge_ = Filters(settings)
    result = {}
    for name, documents in sets.items():
        quality = None
        if name != "declaration":
            quality = classifier(english(args.data / "corpora"), documents, settings["quality"]["train"])
        result[name] = measured(documents, judge_, quality)
        print(f"\n{name}, percent dropped\n\n{table(result[name])}\n")
        for language, one in result[name].items():
            if one["more than twice"]:
                shares = {**one["dropped"], **one["rules"]}
                print(
                    f"{language}: " + ", ".join(f"{rule} {100 * shares[rule]:.0f}" for rule in one["more than twice"])
                )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
