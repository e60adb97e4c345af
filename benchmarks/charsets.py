"""How well pages in legacy charsets are read: declared, damaged, mislabelled and undeclared.

    CRAWL2LLM_DATA=… python -m benchmarks.charsets                    # writes benchmarks/results/charsets.json, prints tables
    python -m benchmarks.charsets --key before --only written crawl   # the same of an earlier commit, beside it

Input, of $CRAWL2LLM_DATA (else ../shared/data): the labelled crawl (crawl/*.warc.gz, *.gold.tsv), and the Universal Declaration of Human
Rights (langid/udhr2.zip) in the languages that each of the standard's 34 legacy encodings can write, in passages of 200 and of 2,000
characters. All figures are the F1 of words that have a character beyond ASCII, as multisets, against the undamaged page read in its true
charset, averaged over pages and then over encodings.

- `written`: passages in each encoding, by what the header declares and how many bytes are replaced by random ones of 0x80 to 0xFF.
  A wrong label is each of the others under which the page reads otherwise.
- `crawl`: pages of the crawl whose labelled charset is not UTF-8: as they came, with their true charset in the header, and with bad bytes.
- `failed`: a declared charset against the bytes' own, by the share of errors above which the declaration is given up.
- `guess`: uchardet (as `guess` uses it) beside Firefox's detector, if `pip install chardetng-py==0.3.5` is there, without and with the
  top-level domain of a country that speaks the language. Seconds per MB are of CPU, for pages of 1 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import endec
import webencodings
from fastwarc.warc import ArchiveIterator, WarcRecordType

from benchmarks import gold
from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest import charsets
from crawl2llm.stages.ingest.charsets import decode_as, decode_text

# Files of the Declaration that each encoding can write.
LANGUAGES = """
ibm866=rus iso-8859-2=pol,ces,hun,slk,slv,hrv iso-8859-3=mlt,epo iso-8859-4=est,lit,lav iso-8859-5=rus,bul,srp_cyrl,mkd iso-8859-6=arb
iso-8859-7=ell_monotonic iso-8859-8=heb iso-8859-10=isl,fao,kal iso-8859-13=lit,lav,est iso-8859-14=cym,gle iso-8859-15=fra,fin
iso-8859-16=ron koi8-r=rus koi8-u=ukr macintosh=fra,deu,ita windows-874=tha windows-1250=pol,ces,hun,slk,slv,hrv
windows-1251=rus,bul,ukr,srp_cyrl,mkd,bel windows-1252=deu,fra,spa,por_BR,ita,swe windows-1253=ell_monotonic windows-1254=tur
windows-1255=heb windows-1256=arb,pes_1,urd windows-1257=lit,lav,est windows-1258=vie x-mac-cyrillic=rus,ukr gbk=cmn_hans
gb18030=cmn_hans big5=cmn_hant euc-jp=jpn iso-2022-jp=jpn shift_jis=jpn euc-kr=kor
"""
DOMAINS = """
rus=ru pol=pl ces=cz hun=hu slk=sk slv=si hrv=hr mlt=mt epo=org est=ee lit=lt lav=lv bul=bg srp_cyrl=rs mkd=mk arb=eg ell_monotonic=gr
heb=il isl=is fao=fo kal=gl cym=uk gle=ie fra=fr fin=fi ron=ro ukr=ua deu=de ita=it tha=th bel=by spa=es por_BR=br swe=se tur=tr pes_1=ir
urd=pk vie=vn cmn_hans=cn cmn_hant=tw jpn=jp kor=kr
"""
# Names in the crawl's labels that are no labels of the standard.
LABELS = {"maccyrillic": "x-mac-cyrillic"}
WORD = re.compile(r"\w+")
BAD: dict[str, float | None] = {"none": None, "one": 0.0, "0.2 %": 0.002, "1 %": 0.01}


@dataclass(frozen=True)
class Sample:
    """A page in a legacy charset, and how it reads."""

    charset: str
    domain: str | None
    body: bytes
    text: str
    header: str | None = None


def words(text: str) -> Counter[str]:
    """The words of a text that have a character beyond ASCII."""
    return Counter(word for word in WORD.findall(text.lower()) if not word.isascii())


def f1(text: str, truth: str) -> float:
    """F1 of the words beyond ASCII of two texts."""
    one, other = words(text), words(truth)
    total = sum(one.values()) + sum(other.values())
    return 2 * sum((one & other).values()) / total if total else 1.0


def declarations(archive: Path, size: int, number: int) -> Iterator[Sample]:
    """`number` passages of `size` characters in each charset and language, as pages without a head."""
    domains = dict(pair.split("=") for pair in DOMAINS.split())
    with zipfile.ZipFile(archive) as opened:
        for charset, languages in (pair.split("=") for pair in LANGUAGES.split()):
            for language in languages.split(","):
                text = opened.read(f"udhr2/{language}.txt").decode().split("---", 1)[-1]
                lines = [line.strip() for line in text.split("\n") if line.strip()]
                for start in range(0, len(lines) * number // (number + 1), len(lines) // (number + 1)):
                    passage = "</p><p>".join(lines[start:])[:size]
                    body = endec.encode(f"<html><body><p>{passage}", charset, "xmlcharrefreplace")
                    held = body.count(b"&#") * 20 <= size and (not body.isascii() or charset == "iso-2022-jp")
                    if held:
                        yield Sample(charset, domains[language], body, decode_as(body, charset))


def crawled(folder: Path) -> Iterator[Sample]:
    """The originals and the re-encoded pages of the labelled crawl that are not in UTF-8."""
    labels = gold.labels(next(folder.glob("*.gold.tsv")))
    for path in sorted(folder.glob("*.warc.gz")):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                label = labels.get(record.record_id, {})
                if label.get("variant") not in {"original", "re-encoded"}:
                    continue
                name = re.sub(r"^non-utf8:|-[a-z]+$", "", label["body_charset"].lower()) or label["body_charset"]
                encoding = webencodings.lookup(LABELS.get(name, name)) or webencodings.lookup(label["body_charset"])
                if encoding and encoding.name not in {"utf-8", "replacement"} and name != "ascii":
                    body = record.reader.read()
                    text = endec.decode(body, encoding.name, "replace", bom="evaluateall")
                    header = re.search(r"charset=([^;\s]+)", record.http_headers.get("Content-Type") or "")
                    yield Sample(encoding.name, None, body, text, header and header.group(1))


def damaged(body: bytes, share: float | None, random_: random.Random) -> bytes:
    """`body` with a share of its bytes, at least one, replaced by random ones beyond ASCII; None leaves it whole."""
    spoilt = bytearray(body)
    for _ in range(0 if share is None else max(1, round(share * len(spoilt)))):
        spoilt[random_.randrange(2, len(spoilt))] = random_.randrange(0x80, 0x100)
    return bytes(spoilt)


def mean(values: Iterable[float]) -> float:
    """The mean, to four digits."""
    all_ = list(values)
    return round(sum(all_) / len(all_), 4) if all_ else 0.0


def by_charset(scores: dict[str, list[float]]) -> dict[str, Any]:
    """The mean of each charset, and theirs."""
    found = {charset: mean(values) for charset, values in scores.items()}
    return {"mean": mean(found.values()), "pages": sum(map(len, scores.values())), "by charset": found}


def written(samples: list[Sample]) -> dict[str, Any]:
    """The section `written`."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    all_labels = [pair.split("=")[0] for pair in LANGUAGES.split()]
    random_ = random.Random(5)  # noqa: S311
    for sample in samples:
        for name, share in BAD.items():
            body = damaged(sample.body, share, random_)
            for header in (sample.charset, None):
                key = f"{'declared' if header else 'undeclared'}, bad bytes: {name}"
                scores[key][sample.charset].append(f1(decode_text(body, header)[0], sample.text))
        for label in all_labels:
            if decode_as(sample.body, label) != sample.text:
                text = decode_text(sample.body, label)[0]
                scores["wrong label"][sample.charset].append(f1(text, sample.text))
    return {key: by_charset(of) for key, of in scores.items()}


def crawl(samples: list[Sample]) -> dict[str, Any]:
    """The section `crawl`."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    random_ = random.Random(6)  # noqa: S311
    for sample in samples:
        for name, share in BAD.items():
            body = damaged(sample.body, share, random_)
            for declared, header in (("as crawled", sample.header), ("declared", sample.charset)):
                score = f1(decode_text(body, header)[0], sample.text)
                scores[f"{declared}, bad bytes: {name}"][sample.charset].append(score)
    return {key: by_charset(of) for key, of in scores.items()}


def failed(samples: list[Sample]) -> dict[str, Any]:
    """The section `failed`: by share, the F1 with the right label and bad bytes, and with wrong labels; and what is given up."""
    random_ = random.Random(7)  # noqa: S311
    all_labels = [pair.split("=")[0] for pair in LANGUAGES.split()]
    cases: list[tuple[str, int, int, float, float]] = []
    for sample in samples:
        for name, share in {**BAD, "3 %": 0.03}.items():
            body = damaged(sample.body, share, random_)
            guessed = f1(decode_as(body, charsets.guess_charset(body)), sample.text)
            for label in all_labels if share is None else [sample.charset]:
                text = decode_as(body, label)
                kind = f"right label, bad bytes: {name}" if label == sample.charset else "wrong label"
                if kind != "wrong label" or text != sample.text:
                    beyond = sum(character > "\x7f" for character in text)
                    cases.append((kind, text.count("\ufffd"), beyond, f1(text, sample.text), guessed))
    found: dict[str, Any] = {}
    for share in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3):
        kept: dict[str, list[float]] = defaultdict(list)
        given_up: dict[str, list[float]] = defaultdict(list)
        for kind, errors, beyond, declared, guessed in cases:
            gives_up = errors > 1 and errors - 1 > share * beyond
            kept[kind].append(guessed if gives_up else declared)
            given_up[kind].append(float(gives_up))
        found[str(share)] = {kind: {"f1": mean(kept[kind]), "given up": mean(given_up[kind])} for kind in kept}
    return found


def detectors() -> dict[str, Callable[[Sample, bytes], str]]:
    """(page, its bytes with damage) → charset."""
    found: dict[str, Callable[[Sample, bytes], str]] = {"uchardet": lambda sample, body: charsets.guess_charset(body)}
    if find_spec("chardetng_py"):
        from chardetng_py import detect

        def firefox(body: bytes, domain: str | None) -> str:
            name = detect(body, allow_utf8=False, tld=domain.encode() if domain else None).lower()
            return {"cp874": "windows-874"}.get(name, name)

        found["chardetng"] = lambda sample, body: firefox(body, None)
        found["chardetng, domain"] = lambda sample, body: firefox(body, sample.domain)
    return found


def guess(samples: list[Sample]) -> dict[str, Any]:
    """The section `guess`."""
    found: dict[str, Any] = {}
    for name, detect in detectors().items():
        random_ = random.Random(8)  # noqa: S311
        scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in samples:
            for bad, share in BAD.items():
                body = damaged(sample.body, share, random_)
                scores[bad][sample.charset].append(f1(decode_as(body, detect(sample, body)), sample.text))
        found[name] = {f"bad bytes: {bad}": by_charset(of) for bad, of in scores.items()}
        seconds = []
        for sample in samples[::10]:
            body = sample.body * (1_000_000 // len(sample.body))
            start = time.process_time()
            detect(sample, body)
            seconds.append((time.process_time() - start) / len(body) * 1e6)
        found[name]["seconds per MB"] = round(sorted(seconds)[len(seconds) // 2], 5)
    return found


SECTIONS = ("written", "crawl", "failed", "guess")


def table(section: dict[str, Any]) -> str:
    """The means of a section as a Markdown table."""
    rows = [
        f"| {key} | {value['mean']:.4f} | {value['pages']} |"
        for key, value in section.items()
        if isinstance(value, dict)
    ]
    return "\n".join(["| | F1 | pages |", "|---|---|---|", *rows])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data, help="folder with crawl/ and langid/")
    parser.add_argument("--key", default="now", help="name of these figures in the output")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "charsets.json")
    args = parser.parse_args(argv)
    if not (args.data / "crawl").is_dir():
        parser.error(f"no such folder: {args.data / 'crawl'}; give --data, or CRAWL2LLM_DATA")
    archive = args.data / "langid" / "udhr2.zip"
    passages = [sample for size in (200, 2000) for sample in declarations(archive, size, 4)]
    result = json.loads(args.output.read_text()) if args.output.exists() else {}
    result["processor"], result["versions"] = processor(), versions("Resiliparse", "endec", "webencodings")
    found = result.setdefault(args.key, {})
    for name in args.only:
        found[name] = {"written": written, "failed": failed, "guess": guess}.get(name, crawl)(
            list(crawled(args.data / "crawl")) if name == "crawl" else passages
        )
        for part, title in (
            [(found[name], name)]
            if name != "guess"
            else [(value, f"guess, {key}") for key, value in found[name].items()]
        ):
            print(f"\n{title}\n\n{json.dumps(part, indent=1) if name == 'failed' else table(part)}")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
