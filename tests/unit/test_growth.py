"""No function that reads a text, a line or a URL, and no regular expression, takes more than linear time, whatever it is given.

Functions are found by a walk over the code: those with a parameter of a name in READ. Those that need more are called as `_calls` says,
and what is not called stands in ELSEWHERE with the reason. benchmarks/growth.py makes a table of all times.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import importlib
import io
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import regex

from tests.unit import growth

ROOT = Path(__file__).resolve().parents[2]
READ = {
    "text", "texts", "line", "lines", "url", "urls", "body", "page", "html", "raw", "normal", "reply", "answer", "address", "head", "lower",
}  # fmt: skip
ONE, SEVERAL = {"str", "bytes", "str | None", "str | bytes", "bytes | str"}, {"list", "Sequence", "Iterable"}
Call = Callable[[str], object]


class Function(NamedTuple):
    """A function of the code. needs: its parameters without a default, with their annotations; `self` is one."""

    module: str
    name: str
    reads: list[str]
    needs: dict[str, str]


@cache
def trees() -> dict[str, ast.Module]:
    """Module → its syntax tree."""
    paths = sorted((ROOT / "scripts").rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text()) for path in paths}


def _is_text(annotation: str) -> bool:
    kind, _, of = annotation.partition("[")
    return annotation in ONE or (kind in SEVERAL and of.rstrip("]") in ONE)


def _functions(module: str, body: list[ast.stmt], prefix: str = "") -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(module, node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            places = [*node.args.posonlyargs, *node.args.args]
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            needed = [
                *places[: len(places) - len(node.args.defaults)],
                *(one for one, default in named if default is None),
            ]
            kinds = {
                one.arg: ast.unparse(one.annotation) if one.annotation else ""
                for one in [*places, *node.args.kwonlyargs]
            }
            reads = [name for name, kind in kinds.items() if name in READ and _is_text(kind)]
            if reads:
                yield Function(module, prefix + node.name, reads, {one.arg: kinds[one.arg] for one in needed})


@cache
def functions() -> dict[str, Function]:
    """Name → function, of all that read a text, a line or a URL."""
    found = [one for module, tree in trees().items() for one in _functions(module, tree.body)]
    return {f"{one.module}.{one.name}": one for one in found}


def _as(kind: str, text: str) -> Any:
    """A text as the type of a parameter."""
    raw = text.encode("utf-8", "surrogatepass")
    if kind.partition("[")[0] in SEVERAL:
        return raw.split(b"\n") if "bytes" in kind else text.split("\n")
    return raw if kind == "bytes" else text


def _resolved(name: str) -> Any:
    module = functions()[name].module
    found: Any = importlib.import_module(module)
    for part in name.removeprefix(f"{module}.").split("."):
        found = getattr(found, part)
    return found


def _by_itself(function: Function, name: str) -> Call | None:
    """A call of a function that needs no more than texts; None for another."""
    needs = function.needs or {function.reads[0]: "str"}
    if not all(one in READ and _is_text(kind) for one, kind in needs.items()):
        return None
    called = _resolved(name)
    return lambda text: _all(called(**{one: _as(kind, text) for one, kind in needs.items()}))


def _all(found: Any) -> Any:
    """What a function gives, of a generator all."""
    return list(found) if hasattr(found, "__next__") else found


def _calls() -> dict[str, Call]:  # what CALLS is, without the imports that it needs
    """Functions that need more than a text."""
    import numpy as np

    from scripts.align import rewards
    from scripts.boilerplate import keys
    from scripts.crawl import document as pydoc
    from scripts.decontaminate import items, search
    from scripts.dedup import minhash, shingles, signature
    from scripts.evaluate import judging, overlap
    from scripts.finetune import patterns, template
    from scripts.formats import blocks, normal_forms
    from scripts.heuristics import c4, measures, stop_words
    from scripts.ingest import access, charsets, extractors, head, http, indexes, licences, markup, tags, text, warc
    from scripts.language import compare
    from scripts.language import score as language
    from scripts.lines import corrections, rules
    from scripts.multilingual import passages as multilingual
    from scripts.paragraphs import hash as paragraphs
    from scripts.picture import svg
    from scripts.pii import checked, detect, masks, phones, runs
    from scripts.quality import perplexity
    from scripts.report import excerpts, samples
    from scripts.serve import turns
    from scripts.sourcecode import measures as sourcecode
    from scripts.substrings import score as substrings
    from scripts.substrings import words as substring_words
    from scripts.synthesize import passages
    from scripts.tokenize import train, unigram
    from scripts.toxicity import terms as toxicity
    from scripts.trace import document, wrote
    from scripts.url import lists
    from scripts.workflow import config

    default = config.validate({})
    corrected = {
        **default["lines"]["score"],
        "uppercase_max": 0.5,
        "numerals": True,
        "counters": True,
        "navigation": True,
    }
    extract = {**default["ingest"]["extract"], "min_characters": 1}
    signed = default["dedup"]["signature"]
    hasher = minhash.MinHasher(*(signed[key] for key in ("permutations", "bands", "rows", "seed")))
    english = stop_words.tables({})["en"]
    identify = language.Identifier(language.model_path(language.BUNDLED))
    detector = detect.Detector()
    index = search.Index([items.item("set", "1", (["what did the cat sat on " * 4], "the mat"), 13, 8)], "idf", 5, 5)
    urls = lists.Lists({key: [] for key in ("folders", "domains", "suffixes", "words", "expressions")})
    urls.expressions = [lists.re2.compile("(a|b)*c$"), lists.re2.compile("(.*)(.*)x")]
    pieces = unigram.pieces(train.untrained(3))
    wanted = wrote.Wanted("the cat sat on the mat a a a a a a a a a a", 8)
    listed = toxicity.Terms([])
    listed.phrases, listed.firsts = {"a": [("a",) * 9 + ("b",)]}, frozenset("a")
    masked = masks.Masks({"score": default["pii"]["score"], "select": default["pii"]["select"]})
    reached = access.Access({}, origins=frozenset(["https://host:443"]), allowed_hosts=("*.example.org",))
    rows = text.JsonLinesReader({"name": "s", "kind": "jsonl"}, extract)
    kept = warc.WarcReader({"name": "s", "kind": "warc"}, extract)
    template_ = template.Template.parse("Question: {question}\nAnswer: {answer}")

    def page(t: str) -> tuple[str, Any]:
        return t, markup.parse(markup.encode(t))

    def record(body: str) -> object:
        from fastwarc.warc import WarcRecord

        from tests.unit.ingest import warcs

        made = warcs.record("response", 1, warcs.http(_as("bytes", body)))
        one = WarcRecord.from_reader(io.BytesIO(made))
        one.parse_http()
        return kept.page(one)

    def both(t: str) -> list[tuple[int, int]]:
        return runs.runs(t, t.encode("utf-8", "replace"))

    calls: dict[str, Call] = {
        "scripts.align.rewards.exact": lambda t: rewards.exact()("", t, t),
        "scripts.boilerplate.keys.keys": lambda t: keys.keys(t, 1),
        "scripts.boilerplate.keys.rows": lambda t: keys.rows(t, 1),
        "scripts.crawl.document.clean": lambda t: pydoc.clean(t, []),
        "scripts.decontaminate.search.Index.find": lambda t: index.find([t]),
        "scripts.dedup.shingles.keeps_numbers": lambda t: shingles.keeps_numbers(_as("bytes", t), "dense"),
        "scripts.dedup.shingles.shingles": lambda t: shingles.shingles(_as("bytes", t), 5),
        "scripts.dedup.shingles.shingle_set": lambda t: shingles.shingle_set(t, 5),
        "scripts.dedup.signature.sign": lambda t: signature.sign([t], 5, hasher),
        "scripts.evaluate.judging.asked": lambda t: judging.asked(t, t, "{answer}", t),
        "scripts.evaluate.judging.score": lambda t: judging.score(t, 0, 10),
        "scripts.evaluate.overlap.distinct": lambda t: overlap.distinct(t.split("\n"), 2),
        "scripts.finetune.patterns.window": lambda t: patterns.window(t, len(t), 80),
        "scripts.finetune.personal.Masks.__call__": lambda t: masked([t]),
        "scripts.finetune.template.Template.parse": template.Template.parse,
        "scripts.finetune.template.Template.completion": template_.completion,
        "scripts.formats.blocks.taken_out": lambda t: blocks.taken_out(
            t, [n for n, b in enumerate(blocks.blocks(t)) if b][::2], "x"
        ),
        "scripts.formats.normal_forms.normal_form": lambda t: normal_forms.normal_form("NFKC", t),
        "scripts.formats.blocks.around": lambda t: blocks.around(t, len(t) // 2, len(t) // 2),
        "scripts.heuristics.c4.few_words": lambda t: c4.few_words(t, 5),
        "scripts.heuristics.c4.has_long_word": lambda t: c4.has_long_word(t, 50),
        "scripts.heuristics.measures.measure": lambda t: measures.measure(t, english, measures.Limits()),
        "scripts.heuristics.stop_words.StopWords.count": lambda t: english.count(t, set(t.split())),
        "scripts.ingest.access.Access.fill_url": lambda t: reached.fill_url(t, "source s"),
        "scripts.ingest.access.Access.trusts": lambda t: reached.trusts(f"http://host/{t}", f"https://{t[:200]}/{t}"),
        "scripts.ingest.access.Access.refusal": lambda t: reached.refusal(f"http://host/{t}", f"http://other/{t}"),
        "scripts.ingest.charsets.attributes": lambda t: charsets.attributes(_as("bytes", t), 0),
        "scripts.ingest.charsets.decode": lambda t: charsets.decode(_as("bytes", t), "gb18030"),
        "scripts.ingest.charsets.decode_text": lambda t: charsets.decode_text(_as("bytes", t), None),
        "scripts.ingest.extractors.fast": lambda t: extractors.fast(*page(t), True),
        "scripts.ingest.extractors.fast_markdown": lambda t: extractors.fast_markdown(*page(t), False),
        "scripts.ingest.head.facts": lambda t: head.facts(
            head.head(page(f"<title>{t}</title><script>{t}</script>")[1]), t
        ),
        "scripts.ingest.http.decode_body": lambda t: http.decode_body(_as("bytes", t), ["chunked", "br"], 1 << 24),
        "scripts.ingest.http.codings": lambda t: http.codings([("Content-Encoding", t)]),
        "scripts.ingest.indexes.names_of": lambda t: indexes.names_of(_as("bytes", t), "http://host/"),
        "scripts.ingest.licences.licence": lambda t: licences.licence(
            *page(f"creativecommons.org/<script>{t}</script>")
        ),
        "scripts.ingest.tags.raised": lambda t: tags.raised("a", t, False),
        "scripts.ingest.tags.said": tags.said,
        "scripts.ingest.tags.conceals": tags.conceals,
        "scripts.ingest.text.chunks": lambda t: list(text.chunks(t, 3)),
        "scripts.ingest.text.TextReader.written": lambda t: (text.unwrapped(t), warc.tidy(t), warc.verbatim(t)),
        "scripts.ingest.text.JsonLinesReader.line": lambda t: rows.line(text.Place("s", "f"), 0, _as("bytes", t)),
        "scripts.ingest.warc._hides": warc._hides,
        "scripts.ingest.warc._trimmed": lambda t: warc._trimmed(t, {"a"}),
        "scripts.ingest.warc.WarcReader.html": record,
        "scripts.language.compare.signals": lambda t: compare.signals(t, "en", [identify], True),
        "scripts.language.score.Identifier.__call__": identify,
        "scripts.lines.corrections.reason": lambda t: corrections.reason(t, corrected),
        "scripts.lines.rules.reason": lambda t: rules.reason(t, corrected),
        "scripts.lines.rules.edits": lambda t: list(rules.edits(t, corrected)),
        "scripts.lines.rules.flagged": lambda t: rules.flagged(t, list(rules.edits(t, corrected))),
        "scripts.multilingual.passages.passages": lambda t: multilingual.passages(
            t, lambda line: ("en", 0.9), "en", 3, 0.5
        ),
        "scripts.multilingual.passages.foreign": lambda t: multilingual.foreign(t, _foreign(t), ["en"]),
        "scripts.multilingual.passages.cuts": lambda t: list(multilingual.cuts(t, _foreign(t), ["en"])),
        "scripts.paragraphs.hash.hashes": lambda t: paragraphs.hashes(t, "paragraph", 1),
        "scripts.picture.svg.wide": lambda t: svg.wide(t, 9.0),
        "scripts.picture.svg.fitted": lambda t: svg.fitted(t, 9.0, 80.0),
        "scripts.pii.checked.cards": lambda t: list(checked.cards(t, both(t))),
        "scripts.pii.detect.Detector.__call__": lambda t: detector(t, "en"),
        "scripts.pii.masks.Masks.__call__": lambda t: masked([t]),
        "scripts.pii.phones.phones": lambda t: list(phones.phones(t, both(t), ("DE", "US"))),
        "scripts.quality.perplexity.lines": lambda t: list(perplexity.lines(t, perplexity.words)),
        "scripts.report.excerpts.segments": lambda t: excerpts.segments(
            t, list(rules.edits(t, corrected)), "lines", len(t)
        ),
        "scripts.report.samples.shown": lambda t: samples.shown(t, len(t)),
        "scripts.report.samples.compared": lambda t: samples.compared(t, " ".join(t.split()[::2]), len(t)),
        "scripts.serve.turns.replaced": lambda t: turns.replaced(t, {"a": "b"}),
        "scripts.sourcecode.measures.share": lambda t: sourcecode.share(t, t.encode("utf-8", "replace"), True),
        "scripts.substrings.score.spans": lambda t: substrings.spans(
            t, np.arange(len(substring_words.words(t))) % 2 == 0
        ),
        "scripts.synthesize.passages.passages": lambda t: list(passages.passages(t, 300)),
        "scripts.synthesize.replies.Judge.__call__": _judged,
        "scripts.tokenize.train.cut_long_pieces": lambda t: list(train.cut_long_pieces([t], pieces)),
        "scripts.toxicity.terms.Terms.__call__": listed,
        "scripts.trace.document.cut": lambda t: document.cut(t, 40),
        "scripts.trace.document.beside": lambda t: document.beside(t, t[::2]),
        "scripts.trace.wrote.Wanted.__init__": lambda t: wrote.Wanted(t, 8),
        "scripts.trace.wrote.Wanted.runs": lambda t: list(wanted.runs(t)),
        "scripts.url.lists.Hashes.__contains__": lambda t: t in urls.domains,
        "scripts.url.lists.Lists.domain": urls.domain,
        "scripts.url.lists.Lists.url": lambda t: urls.url(t * 8),  # copies of long addresses take little time
        "scripts.url.lists.Lists.expression": urls.expression,
        "scripts.url.lists.Lists.words_in": urls.words_in,
    }
    return calls


def _foreign(text: str) -> Any:
    from scripts.multilingual import passages

    return passages.passages(text, lambda line: (line[:1], 0.9), "en", 1, 0.5)


def _judged(text: str) -> object:
    from scripts.synthesize import replies
    from scripts.synthesize.asked import Asked, Seed
    from scripts.synthesize.endpoint import Reply

    judge = replies.Judge({"refusals": ["I cannot"], "copy_max": 0.8, "language": ""})
    return judge(Asked(Seed("1", "the cat", "", ""), 0, "", "the cat", "the cat"), Reply(text))


# Private ones are called by others of their module. Names or the beginnings of names.
ELSEWHERE = {
    "scripts.align.reward_model.": "a tokenizer and a model read it",
    "scripts.align.rewards.Rewards.each": "the rewards are called by themselves",
    "scripts.compress.llama.": "llama.cpp reads it",
    "scripts.corpus.overlap.": "calls dedup.signature.sign and shingle_set",
    "scripts.crawl.": "of packages that are installed: answers of our own pages, pydoc's HTML",
    "scripts.decontaminate.command.Cleaner.__call__": "calls Index.find",
    "scripts.evaluate.compressors.": "xz and zstd",
    "scripts.evaluate.judging.request": "calls asked",
    "scripts.evaluate.overlap.common": "rouge_score and sacrebleu, over an answer of a bounded number of tokens",
    "scripts.evaluate.overlap.corpus": "sacrebleu, over answers of a bounded number of tokens",
    "scripts.evaluate.overlap.Words.tokenize": "is words",
    "scripts.finetune.layouts.columns": "fills in a template",
    "scripts.finetune.pairs.pair": "puts it into a row",
    "scripts.finetune.patterns.found": "patterns of the config, each with a limit of time",
    "scripts.ingest.arc.as_warc": "a line that frames.LINE bounds to 12,000 bytes",
    "scripts.ingest.extractors.resiliparse": "a library, behind ingest.bounds",
    "scripts.ingest.extractors.trafilatura": "a library, behind ingest.bounds",
    "scripts.ingest.fetch.": "asks a server",
    "scripts.ingest.remote.": "asks a server",
    "scripts.ingest.text.TextReader.page": "puts it into a page",
    "scripts.ingest.transport.": "asks a server",
    "scripts.ingest.warc.WarcReader.document": "puts it into a page",
    "scripts.quality.classifier.Classifier.__call__": "fastText reads it",
    "scripts.quality.fasttext.Model.__call__": "fastText reads it",
    "scripts.quality.ngrams.Effects.log_odds": "fastText reads it",
    "scripts.quality.transformers.": "a tokenizer and a model read it",
    "scripts.serve.": "a tokenizer and a model read it",
    "scripts.synthesize.replies.": "Judge.__call__ calls them",
    "scripts.synthesize.run.": "puts it into a row",
    "scripts.tokenize.ranks.merged": "of an entry of a vocabulary, at most PIECE characters",
    "scripts.tokenize.unigram.train": "sentencepiece reads it",
    "scripts.toxicity.classifiers.": "fastText reads it",
    "scripts.toxicity.terms.Lists.__call__": "calls Terms",
    "scripts.trace.document.nearest": "reads results",
    "scripts.trace.forget.answer": "reads results",
    "scripts.trace.wrote.": "reads an index",
    "scripts.training.": "of the machine",
    "scripts.plan.command.show": "prints",
    "scripts.url.lists.Hashes.__init__": "hashes",
    "scripts.watch.": "prints; a log's line is short",
    "scripts.workflow.": "a file of the project",
}


def _private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _table() -> dict[str, Call]:
    """Every function with a way to call it. Those of ELSEWHERE that need only a text are called too."""
    calls = _calls()
    for name, function in functions().items():
        skipped = _private(name) or name.startswith(
            ("scripts.evaluate.compressors.", "scripts.plan.command.show", "scripts.training.")
        )
        if name not in calls and not skipped and (call := _by_itself(function, name)):
            calls[name] = call
    return calls


def test_every_function_that_reads_a_text_is_called_or_named_with_a_reason() -> None:
    calls = _table()
    lacking = [
        name
        for name in functions()
        if name not in calls and not _private(name) and not name.startswith(tuple(ELSEWHERE))
    ]
    assert not lacking, "a line in _calls, or in ELSEWHERE with the reason: " + ", ".join(lacking)
    assert len(functions()) > 250 and len(calls) > 190
    of_nothing = [name for name in ELSEWHERE if not any(one.startswith(name) for one in functions())]
    assert not of_nothing


class Expression(NamedTuple):
    """A regular expression of the code, and what is done with it."""

    name: str
    pattern: re.Pattern[Any]
    methods: list[str]


METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
# What an expression reads at most, in characters.
AT_MOST = {
    "scripts.pii.addresses.VERSION": 16,  # BEFORE
    "scripts.pii.addresses.SCHEME": 20,  # url_credentials
    "scripts.picture.svg.style": 20,  # its own stylesheet
}
# What reads logs, names and replies of programs gets fewer strings.
OF_A_RUN = tuple(
    f"scripts.{name}."
    for name in (
        "compress",
        "crawl",
        "models",
        "new",
        "picture",
        "plan",
        "pretrain",
        "slurm",
        "tools",
        "watch",
        "workflow",
    )
)
# Expressions that are made when the code runs.
MADE = {
    "scripts.align.rewards": "the config's, with a limit of time",
    "scripts.compress.checks": "the config's, on names of layers",
    "scripts.compress.layers": "the config's, on names of layers",
    "scripts.finetune.patterns": "the config's, with a limit of time",
    "scripts.formats.normal_forms": "two classes of characters, below",
    "scripts.ingest.frames": "WARC and ARC, below",
    "scripts.language.writing": "one class of characters",
    "scripts.pii.checked": "IDS, below",
    "scripts.pii.credentials": "FORMS, below",
    "scripts.pretrain.gpus": "names of GPUs",
    "scripts.serve.turns": "alternatives of one character each",
    "scripts.slurm.patience": "a word of a message",
    "scripts.synthesize.checks": "the config's, only compiled",
    "scripts.synthesize.replies": "the config's, on 300 characters",
    "scripts.tokenize.unigram": "the pre-tokenizer's, below",
}


def _made() -> Iterator[Expression]:
    """Those of MADE that are not of the config."""
    from scripts.formats import normal_forms
    from scripts.ingest import frames
    from scripts.pii import checked, credentials
    from scripts.tokenize import train, unigram

    yield Expression("scripts.formats.normal_forms.RUN", normal_forms.RUN, ["sub"])
    yield Expression("scripts.formats.normal_forms.PERHAPS", normal_forms.PERHAPS, ["sub"])
    for name, grammar in (("WARC", frames.WARC), ("ARC", frames.ARC)):
        yield Expression(f"scripts.ingest.frames.{name}.first", grammar.first, ["match"])
        yield Expression(f"scripts.ingest.frames.{name}.next", grammar.next, ["search"])
        yield Expression(f"scripts.ingest.frames.{name}.within", grammar.within, ["search"])
    for one in checked.NAMED:
        yield Expression(f"scripts.pii.checked.{one.name}", checked._bounded(one.pattern), ["finditer"])
    for form in credentials.FORMS:
        yield Expression(f"scripts.pii.credentials.{form.name}", form.pattern, ["finditer"])
    for digits, marks in ((3, "separate"), (0, "separate"), (0, "letters"), (3, "letters")):
        with contextlib.suppress(ValueError):
            pieces: Any = unigram.pieces(train.untrained(digits, marks))
            yield Expression(f"scripts.tokenize.unigram.pieces({digits}, {marks})", pieces, ["finditer"])


def _evaluated(node: ast.expr, module: str) -> Any:
    """What an expression of the code is, by the names of its module. Raises NameError for one of a function's own names."""
    code = compile(ast.Expression(node), module, "eval")
    try:
        return eval(code, {"re": re, "regex": regex})  # noqa: S307 - our own code; modules are imported only if need be
    except NameError:
        return eval(code, vars(importlib.import_module(module)))  # noqa: S307


def _hashable(node: ast.expr, module: str) -> Any:
    """The same, None for what is no constant."""
    try:
        found = _evaluated(node, module)
        hash(found)
    except (NameError, AttributeError, TypeError):
        return None
    return found


def _methods() -> dict[Any, set[str]]:
    """Expression → what the code does with it, of those that have a name in capitals."""
    found = defaultdict[Any, set[str]](set)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            used = isinstance(node, ast.Attribute) and node.attr in METHODS and node.value
            if used and ast.unparse(used).rpartition(".")[2].isupper():
                found[_hashable(used, module)].add(node.attr)
    return found


@cache
def expressions() -> tuple[list[Expression], set[str]]:
    """(all regular expressions of `re` and `regex`; the modules that make some when they run). RE2's are linear, whatever they are."""
    importlib.import_module("snakemake.cli")  # its modules import each other: another order fails
    used, found, made = _methods(), list(_made()), set[str]()
    wanted = {f"{kind}.{way}": (kind, way) for kind in ("re", "regex") for way in (*METHODS, "compile")}
    for module, tree in trees().items():
        names: dict[int, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                names |= {id(call): ast.unparse(node.targets[0]) for call in ast.walk(node.value)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in wanted:
                continue
            kind, way = wanted[ast.unparse(node.func)]
            flags = [one for one in (*node.args[1:], *(key.value for key in node.keywords)) if "re" in ast.unparse(one)]
            try:
                pattern = _evaluated(node.args[0], module)
                flag = next(
                    (value for one in flags if isinstance(value := _hashable(one, module), re.RegexFlag | int)), 0
                )
            except NameError:
                made.add(module)
                continue
            compiled = importlib.import_module(kind).compile(pattern, flag)
            methods = sorted(used[compiled]) if way == "compile" else [way]
            name = f"{module}.{names.get(id(node), f'line {node.lineno}')}"
            found.append(Expression(name, compiled, methods or ["search"]))  # such as one of a tuple
    return found, made


def _uses(expression: Expression) -> Iterator[Call]:
    is_bytes = isinstance(expression.pattern.pattern, bytes)
    most = AT_MOST.get(expression.name)
    for method in expression.methods:
        call = getattr(expression.pattern, method)
        if method in ("sub", "subn"):
            call = functools.partial(call, b"" if is_bytes else "")

        def use(text: str, call: Any = call) -> object:
            return _all_of(call(_as("bytes" if is_bytes else "str", text[:most])))

        yield use


def _all_of(found: Any) -> object:
    return collections.deque(found, 0) if hasattr(found, "__next__") else found


def test_every_regular_expression_is_found() -> None:
    found, made = expressions()
    assert len(found) > 200
    assert made == set(MADE), "expressions that are made at run time: MADE says what they are"
    assert set(AT_MOST) <= {one.name for one in found}


def _faster_than_linear(calls: Iterable[tuple[str, Call]], names: Collection[str]) -> list[str]:
    """What grows faster than the strings of these names, with its CPU time for one of 1, 2 and 4 times a length."""
    found = []
    with growth.limited():
        for name, call in calls:
            for given in names:
                if times := growth.growth(call, given):
                    found.append(f"{name} of {given}: {', '.join(f'{1000 * one:.1f}' for one in times)} ms")
                    break
    return found


def test_no_function_takes_more_than_linear_time() -> None:
    assert not _faster_than_linear(_table().items(), growth.FEW)


def test_no_regular_expression_takes_more_than_linear_time() -> None:
    every = expressions()[0]
    pages = [one for one in every if not one.name.startswith(OF_A_RUN)]
    for some, strings in ((pages, growth.MOST), ([one for one in every if one not in pages], growth.FEW)):
        assert not _faster_than_linear(((one.name, use) for one in some for use in _uses(one)), strings)


@pytest.mark.long
def test_the_same_with_every_string() -> None:
    uses = [(one.name, use) for one in expressions()[0] for use in _uses(one)]
    assert not _faster_than_linear([*_table().items(), *uses], growth.STRINGS)


def _search(pattern: str) -> Call:
    return re.compile(pattern).search


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(_search(r"\s+$"), id="each space begins a run"),
        pytest.param(_search(r"(a+)+$"), id="exponential"),
        pytest.param(lambda text: sum(len(99 * text[at:]) for at in range(len(text))), id="every end is copied"),
        pytest.param(
            lambda text: [word for word in text if word in text.split()[:1] or word in list(text)[-1:]],
            id="a list in a loop",
        ),
    ],
)
def test_more_than_linear_time_is_seen(call: Call) -> None:
    assert _faster_than_linear([("it", call)], growth.FEW)


def test_linear_time_is_not_refused() -> None:
    assert not _faster_than_linear(
        [("it", lambda text: [ord(one) for one in text * 20]), ("other", str.split)], growth.FEW
    )
