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
    return {
        ".".join(path.relative_to(ROOT / "scripts").with_suffix("").parts): ast.parse(path.read_text())
        for path in paths
    }


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


def _resolve_name(name: str) -> Any:
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
    called = _resolve_name(name)
    return lambda text: _all(called(**{one: _as(kind, text) for one, kind in needs.items()}))


def _all(found: Any) -> Any:
    """What a function gives, of a generator all."""
    return list(found) if hasattr(found, "__next__") else found


def _calls() -> dict[str, Call]:  # what CALLS is, without the imports that it needs
    """Functions that need more than a text."""
    import numpy as np

    from crawl2llm.chain import config, remote_access
    from crawl2llm.commands.plan.picture import svg
    from crawl2llm.commands.serve import chat_tokens
    from crawl2llm.commands.trace import attribution, document
    from crawl2llm.core import judging
    from crawl2llm.filters.boilerplate import keys
    from crawl2llm.filters.decontaminate import items, search
    from crawl2llm.filters.heuristics import measures
    from crawl2llm.filters.language import compare
    from crawl2llm.filters.lines import corrections, rules
    from crawl2llm.filters.lines.settings import ScoreSettings
    from crawl2llm.filters.multilingual import passages as multilingual
    from crawl2llm.filters.paragraphs import hash as paragraphs
    from crawl2llm.filters.pii import checksummed, detect, digit_runs, masks, phones
    from crawl2llm.filters.pii import settings as pii
    from crawl2llm.filters.quality import perplexity
    from crawl2llm.filters.sourcecode import measures as sourcecode
    from crawl2llm.filters.substrings import score as substrings
    from crawl2llm.filters.substrings import words as substring_words
    from crawl2llm.filters.toxicity import terms as toxicity
    from crawl2llm.filters.url import lists
    from crawl2llm.filters.url.settings import ScoreSettings as UrlSettings
    from crawl2llm.formats import language_identifier
    from crawl2llm.stages.align import rewards
    from crawl2llm.stages.crawl import document as pydoc
    from crawl2llm.stages.evaluate import code_answers, overlap
    from crawl2llm.stages.ingest import charsets, extractors, head, http, indexes, licences, markup, tags, text, warc
    from crawl2llm.stages.ingest import settings as ingest_settings
    from crawl2llm.stages.report import excerpts, samples
    from crawl2llm.stages.synthesize import passages
    from crawl2llm.stages.tokenize import train, unigram
    from crawl2llm.text import blocks, c4_lines, minhash, normal_forms, shingles, signatures, stop_words
    from crawl2llm.training import pair_patterns, template

    default = config.validate({})
    corrected = ScoreSettings(uppercase_max=0.5, numerals=True, counters=True, navigation=True)
    extract = ingest_settings.ExtractSettings()
    signed = default["dedup"]["signature"]
    hasher = minhash.MinHasher(*(signed[key] for key in ("permutations", "bands", "rows", "seed")))
    english = stop_words.stop_words_by_language({})["en"]
    identify = language_identifier.Identifier(language_identifier.model_path(language_identifier.BUNDLED))
    detector = detect.Detector()
    index = search.Index(
        [items.build_item("set", "1", (["what did the cat sat on " * 4], "the mat"), 13, 8)], "idf", 5, 5
    )
    urls = lists.Lists(UrlSettings())
    urls.expressions = [lists.re2.compile("(a|b)*c$"), lists.re2.compile("(.*)(.*)x")]
    pieces = unigram.piece_expression(train.untrained_tokenizer(3))
    wanted = attribution.TextQuery("the cat sat on the mat a a a a a a a a a a", 8)
    listed = toxicity.Terms([])
    listed.phrases, listed.firsts = {"a": [("a",) * 9 + ("b",)]}, frozenset("a")
    masked = masks.Masks(pii.ScoreSettings(), pii.SelectSettings())
    reached = remote_access.Access({}, origins=frozenset(["https://host:443"]), allowed_hosts=("*.example.org",))
    rows = text.JsonLinesReader(ingest_settings.ExtractSource(name="s", kind="jsonl"), extract)
    kept = warc.WarcReader(ingest_settings.ExtractSource(name="s", kind="warc"), extract)
    template_ = template.Template.parse("Question: {question}\nAnswer: {answer}")

    def page(t: str) -> tuple[str, Any]:
        return t, markup.parse_page(markup.encode_page(t))

    def record(body: str) -> object:
        from fastwarc.warc import WarcRecord

        from tests.unit.stages.ingest import warcs

        made = warcs.record("response", 1, warcs.http(_as("bytes", body)))
        one = WarcRecord.from_reader(io.BytesIO(made))
        one.parse_http()
        return kept.page_of_record(one)

    def both(t: str) -> list[tuple[int, int]]:
        return digit_runs.find_digit_runs(t, t.encode("utf-8", "replace"))

    calls: dict[str, Call] = {
        "crawl2llm.stages.align.rewards.exact_reward": lambda t: rewards.exact_reward()("", t, t),
        "crawl2llm.filters.boilerplate.keys.line_keys": lambda t: keys.line_keys(t, 1),
        "crawl2llm.filters.boilerplate.keys.line_rows": lambda t: keys.line_rows(t, 1),
        "crawl2llm.stages.crawl.document.clean_page": lambda t: pydoc.clean_page(t, []),
        "crawl2llm.filters.decontaminate.search.Index.find_matches": lambda t: index.find_matches([t]),
        "crawl2llm.text.shingles.keeps_numbers": lambda t: shingles.keeps_numbers(_as("bytes", t), "dense"),
        "crawl2llm.text.shingles.shingles": lambda t: shingles.shingles(_as("bytes", t), 5),
        "crawl2llm.text.shingles.shingle_set": lambda t: shingles.shingle_set(t, 5),
        "crawl2llm.text.signatures.compute_signals": lambda t: signatures.compute_signals([t], 5, hasher),
        "crawl2llm.core.judging.fill_prompt": lambda t: judging.fill_prompt(t, t, "{answer}", t),
        "crawl2llm.core.judging.parse_score": lambda t: judging.parse_score(t, 0, 10),
        "crawl2llm.stages.evaluate.code_answers.program_of": lambda t: code_answers.program_of({"prompt": ""}, t, True),
        "crawl2llm.stages.evaluate.overlap.distinct_share": lambda t: overlap.distinct_share(t.split("\n"), 2),
        "crawl2llm.training.pair_patterns.bounded_text": lambda t: pair_patterns.bounded_text(t, len(t), 80),
        "crawl2llm.filters.pair_masks.Masks.__call__": lambda t: masked([t]),
        "crawl2llm.training.template.Template.parse": template.Template.parse,
        "crawl2llm.training.template.Template.completion": template_.completion,
        "crawl2llm.text.blocks.removal_spans": lambda t: blocks.removal_spans(
            t, [n for n, b in enumerate(blocks.compared_blocks(t)) if b][::2], "x"
        ),
        "crawl2llm.text.normal_forms.normal_form": lambda t: normal_forms.normal_form("NFKC", t),
        "crawl2llm.text.blocks.removal_range": lambda t: blocks.removal_range(t, len(t) // 2, len(t) // 2),
        "crawl2llm.text.c4_lines.has_few_words": lambda t: c4_lines.has_few_words(t, 5),
        "crawl2llm.text.c4_lines.has_long_word": lambda t: c4_lines.has_long_word(t, 50),
        "crawl2llm.filters.heuristics.measures.measure_document": lambda t: measures.measure_document(
            t, english, measures.Limits()
        ),
        "crawl2llm.text.stop_words.StopWords.count": lambda t: english.count(t, set(t.split())),
        "crawl2llm.chain.remote_access.Access.fill_url": lambda t: reached.fill_url(t, "source s"),
        "crawl2llm.chain.remote_access.Access.trusts": lambda t: reached.trusts(
            f"http://host/{t}", f"https://{t[:200]}/{t}"
        ),
        "crawl2llm.chain.remote_access.Access.why_refused": lambda t: reached.why_refused(
            f"http://host/{t}", f"http://other/{t}"
        ),
        "crawl2llm.stages.ingest.charsets.parse_attributes": lambda t: charsets.parse_attributes(_as("bytes", t), 0),
        "crawl2llm.stages.ingest.charsets.decode_as": lambda t: charsets.decode_as(_as("bytes", t), "gb18030"),
        "crawl2llm.stages.ingest.charsets.decode_text": lambda t: charsets.decode_text(_as("bytes", t), None),
        "crawl2llm.stages.ingest.extractors.fast_text": lambda t: extractors.fast_text(*page(t), True),
        "crawl2llm.stages.ingest.extractors.fast_markdown": lambda t: extractors.fast_markdown(*page(t), False),
        "crawl2llm.stages.ingest.head.page_facts": lambda t: head.page_facts(
            head.read_head(page(f"<title>{t}</title><script>{t}</script>")[1]), t
        ),
        "crawl2llm.stages.ingest.http.decode_body": lambda t: http.decode_body(
            _as("bytes", t), ["chunked", "br"], 1 << 24
        ),
        "crawl2llm.stages.ingest.http.codings": lambda t: http.codings([("Content-Encoding", t)]),
        "crawl2llm.stages.ingest.indexes.names_of": lambda t: indexes.names_of(_as("bytes", t), "http://host/"),
        "crawl2llm.stages.ingest.licences.page_licence": lambda t: licences.page_licence(
            *page(f"creativecommons.org/<script>{t}</script>")
        ),
        "crawl2llm.stages.ingest.tags.raised_mark": lambda t: tags.raised_mark("a", t, False),
        "crawl2llm.stages.ingest.tags.name_bits": tags.name_bits,
        "crawl2llm.stages.ingest.tags.conceals": tags.conceals,
        "crawl2llm.stages.ingest.text.text_chunks": lambda t: list(text.text_chunks(t, 3)),
        "crawl2llm.stages.ingest.text.TextReader.document_text": lambda t: (
            text.unwrap_lines(t),
            warc.tidy(t),
            warc.clean_verbatim(t),
        ),
        "crawl2llm.stages.ingest.text.JsonLinesReader.page_of_line": lambda t: rows.page_of_line(
            text.Place("s", "f"), 0, _as("bytes", t)
        ),
        "crawl2llm.stages.ingest.warc._says_noindex": warc._says_noindex,
        "crawl2llm.stages.ingest.warc._trim_lines": lambda t: warc._trim_lines(t, {"a"}),
        "crawl2llm.stages.ingest.warc.WarcReader.page_of_html": record,
        "crawl2llm.filters.language.compare.language_signals": lambda t: compare.language_signals(
            t, "en", [identify], True
        ),
        "crawl2llm.formats.language_identifier.Identifier.__call__": identify,
        "crawl2llm.filters.lines.corrections.correction_of": lambda t: corrections.correction_of(t, corrected),
        "crawl2llm.filters.lines.rules.rule_removing": lambda t: rules.rule_removing(t, corrected),
        "crawl2llm.filters.lines.rules.removed_spans": lambda t: list(rules.removed_spans(t, corrected)),
        "crawl2llm.filters.lines.rules.flagged_share": lambda t: rules.flagged_share(
            t, list(rules.removed_spans(t, corrected))
        ),
        "crawl2llm.filters.multilingual.passages.classify_lines": lambda t: multilingual.classify_lines(
            t, lambda line: ("en", 0.9), "en", 3, 0.5
        ),
        "crawl2llm.filters.multilingual.passages.foreign_characters": lambda t: multilingual.foreign_characters(
            t, _foreign(t), ["en"]
        ),
        "crawl2llm.filters.multilingual.passages.foreign_spans": lambda t: list(
            multilingual.foreign_spans(t, _foreign(t), ["en"])
        ),
        "crawl2llm.filters.paragraphs.hash.paragraph_hashes": lambda t: paragraphs.paragraph_hashes(t, "paragraph", 1),
        "crawl2llm.commands.plan.picture.svg.text_width": lambda t: svg.text_width(t, 9.0),
        "crawl2llm.commands.plan.picture.svg.fit_text": lambda t: svg.fit_text(t, 9.0, 80.0),
        "crawl2llm.filters.pii.checksummed.find_card_numbers": lambda t: list(
            checksummed.find_card_numbers(t, both(t))
        ),
        "crawl2llm.filters.pii.detect.Detector.__call__": lambda t: detector(t, "en"),
        "crawl2llm.filters.pii.masks.Masks.__call__": lambda t: masked([t]),
        "crawl2llm.filters.pii.phones.find_phone_numbers": lambda t: list(
            phones.find_phone_numbers(t, both(t), ("DE", "US"))
        ),
        "crawl2llm.filters.quality.perplexity.spelled_lines": lambda t: list(
            perplexity.spelled_lines(t, perplexity.spaced_words)
        ),
        "crawl2llm.stages.report.excerpts.text_segments": lambda t: excerpts.text_segments(
            t, list(rules.removed_spans(t, corrected)), "lines", len(t)
        ),
        "crawl2llm.stages.report.samples.cut_text": lambda t: samples.cut_text(t, len(t)),
        "crawl2llm.stages.report.samples.side_by_side": lambda t: samples.side_by_side(
            t, " ".join(t.split()[::2]), len(t)
        ),
        "crawl2llm.commands.serve.chat_tokens.replace_all": lambda t: chat_tokens.replace_all(t, {"a": "b"}),
        "crawl2llm.filters.sourcecode.measures.letter_share": lambda t: sourcecode.letter_share(
            t, t.encode("utf-8", "replace"), True
        ),
        "crawl2llm.filters.substrings.score.removed_spans": lambda t: substrings.removed_spans(
            t, np.arange(len(substring_words.split_words(t))) % 2 == 0
        ),
        "crawl2llm.stages.synthesize.passages.passages": lambda t: list(passages.passages(t, 300)),
        "crawl2llm.stages.synthesize.replies.Judge.__call__": _judge_reply,
        "crawl2llm.stages.tokenize.train.cut_long_pieces": lambda t: list(train.cut_long_pieces([t], pieces)),
        "crawl2llm.filters.toxicity.terms.Terms.__call__": listed,
        "crawl2llm.commands.trace.document.shorten_line": lambda t: document.shorten_line(t, 40),
        "crawl2llm.commands.trace.document.side_by_side": lambda t: document.side_by_side(t, t[::2]),
        "crawl2llm.commands.trace.attribution.TextQuery.__init__": lambda t: attribution.TextQuery(t, 8),
        "crawl2llm.commands.trace.attribution.TextQuery.shared_runs": lambda t: list(wanted.shared_runs(t)),
        "crawl2llm.filters.url.lists.Hashes.__contains__": lambda t: t in urls.domains,
        "crawl2llm.filters.url.lists.Lists.listed_domain": urls.listed_domain,
        "crawl2llm.filters.url.lists.Lists.listed_address": lambda t: urls.listed_address(
            t * 8
        ),  # copies of long addresses take little time
        "crawl2llm.filters.url.lists.Lists.matching_expression": urls.matching_expression,
        "crawl2llm.filters.url.lists.Lists.words_in": urls.words_in,
    }
    return calls


def _foreign(text: str) -> Any:
    from crawl2llm.filters.multilingual import passages

    return passages.classify_lines(text, lambda line: (line[:1], 0.9), "en", 1, 0.5)


def _judge_reply(text: str) -> object:
    from crawl2llm.stages.synthesize import replies
    from crawl2llm.stages.synthesize.endpoint import Reply
    from crawl2llm.stages.synthesize.prompts import Seed, TextRequest
    from crawl2llm.stages.synthesize.settings import RephraseSettings

    judge = replies.Judge(RephraseSettings(refusals=["I cannot"], language=None))
    return judge(TextRequest(Seed("1", "the cat", "", ""), 0, "", "the cat", "the cat"), Reply(text))


# Modules that read what the machine, or the run, says.
OF_THE_MACHINE = tuple(
    f"crawl2llm.training.{name}."
    for name in (
        "hang_detector",
        "numa",
        "processes",
    )
)
# Modules that read files of the project and of its runs.
OF_THE_PROJECT = tuple(
    f"crawl2llm.{name}."
    for name in (
        "chain.freshness",
        "chain.locked_packages",
        "chain.placement_options",
        "chain.yaml_errors",
        "core.console",
        "core.content_hash",
        "core.devices",
        "core.manifest",
        "core.record",
        "core.run_folder",
        "core.secret_masking",
        "core.yaml_hints",
    )
)
# Private ones are called by others of their module. Names or the beginnings of names.
ELSEWHERE = {
    "crawl2llm.stages.align.reward_model.": "a tokenizer and a model read it",
    "crawl2llm.stages.align.rewards.Rewards.answer_values": "the rewards are called by themselves",
    "crawl2llm.stages.compress.llama_worker.": "llama.cpp reads it",
    "crawl2llm.stages.corpus.overlap.": "calls dedup.signature.compute_signals and shingle_set",
    "crawl2llm.stages.crawl.": "of packages that are installed: answers of our own pages, pydoc's HTML",
    "crawl2llm.filters.decontaminate.command.Cleaner.__call__": "calls Index.find_matches",
    "crawl2llm.stages.evaluate.compressors.": "xz and zstd",
    "crawl2llm.core.judging.score_request": "calls asked",
    "crawl2llm.stages.evaluate.overlap.compare_with_reference": "rouge_score and sacrebleu, over an answer of a bounded number of tokens",
    "crawl2llm.stages.evaluate.overlap.corpus_scores": "sacrebleu, over answers of a bounded number of tokens",
    "crawl2llm.stages.evaluate.overlap.FoldedTokenizer.tokenize": "is words",
    "crawl2llm.slurm.executor.task_line": "a command line",
    "crawl2llm.training.chat_layout.without_beginning": "looks at the beginning alone",
    "crawl2llm.training.pair_layouts.column_layout": "fills in a template",
    "crawl2llm.stages.finetune.pairs.result_row": "puts it into a row",
    "crawl2llm.training.pair_patterns.matched_pairs": "patterns of the config, each with a limit of time",
    "crawl2llm.stages.ingest.arc.as_warc": "a line that frames.LINE bounds to 12,000 bytes",
    "crawl2llm.stages.ingest.extractors.resiliparse_text": "a library, behind ingest.bounds",
    "crawl2llm.stages.ingest.extractors.trafilatura_": "a library, behind ingest.bounds",
    "crawl2llm.stages.ingest.fetch.": "asks a server",
    "crawl2llm.stages.ingest.remote.": "asks a server",
    "crawl2llm.stages.ingest.text.TextReader.page_of_text": "puts it into a page",
    "crawl2llm.stages.ingest.transport.": "asks a server",
    "crawl2llm.stages.ingest.warc.WarcReader.page_of_text": "puts it into a page",
    "crawl2llm.filters.quality.classifier.Classifier.__call__": "fastText reads it",
    "crawl2llm.filters.quality.fasttext.Model.__call__": "fastText reads it",
    "crawl2llm.filters.quality.ngrams.Effects.log_odds": "fastText reads it",
    "crawl2llm.filters.quality.transformers.": "a tokenizer and a model read it",
    "crawl2llm.commands.serve.": "a tokenizer and a model read it",
    "crawl2llm.stages.synthesize.replies.": "Judge.__call__ calls them",
    "crawl2llm.stages.synthesize.run.": "puts it into a row",
    "crawl2llm.stages.tokenize.ready.Ready.": "a tokenizer that the config names, and its original, read it",
    "crawl2llm.stages.tokenize.ranks.merge_below": "of an entry of a vocabulary, at most PIECE characters",
    "crawl2llm.stages.tokenize.unigram.train_unigram": "sentencepiece reads it",
    "crawl2llm.filters.toxicity.classifiers.": "fastText reads it",
    "crawl2llm.filters.toxicity.terms.Lists.__call__": "calls Terms",
    "crawl2llm.commands.trace.document.nearest_addresses": "reads results",
    "crawl2llm.commands.trace.takedown.takedown_report": "reads results",
    "crawl2llm.commands.trace.attribution.": "reads an index",
    "crawl2llm.commands.plan.words.": "prints",
    "crawl2llm.commands.plan.command.print_plan": "prints",
    "crawl2llm.filters.url.lists.Hashes.__init__": "hashes",
    "crawl2llm.commands.keys.": "of the schema",
    "crawl2llm.commands.watch.": "prints; a log's line is short",
    **dict.fromkeys(OF_THE_MACHINE, "of the machine"),
    **dict.fromkeys(OF_THE_PROJECT, "a file of the project"),
}


def _private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _table() -> dict[str, Call]:
    """Every function with a way to call it. Those of ELSEWHERE that need only a text are called too."""
    calls = _calls()
    for name, function in functions().items():
        skipped = _private(name) or name.startswith(
            ("crawl2llm.stages.evaluate.compressors.", "crawl2llm.commands.plan.command.print_plan", *OF_THE_MACHINE)
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
    "crawl2llm.filters.pii.addresses.VERSION": 16,  # BEFORE
    "crawl2llm.filters.pii.addresses.SCHEME": 20,  # url_credentials
    "crawl2llm.commands.plan.picture.svg.style": 20,  # its own stylesheet
}
# What reads logs, names and replies of programs gets fewer strings.
OF_A_RUN = tuple(
    f"crawl2llm.{name}."
    for name in (
        "chain",
        "commands.new",
        "commands.plan",
        "commands.watch",
        "core",
        "slurm",
        "stages.compress",
        "stages.crawl",
        "stages.pretrain",
        "training",
        "workflow",
    )
)
# Expressions that are made when the code runs.
MADE = {
    "crawl2llm.stages.align.rewards": "the config's, with a limit of time",
    "crawl2llm.stages.compress.checks": "the config's, on names of layers",
    "crawl2llm.training.compressible_layers": "the config's, on names of layers",
    "crawl2llm.training.pair_patterns": "the config's, with a limit of time",
    "crawl2llm.text.normal_forms": "two classes of characters, below",
    "crawl2llm.stages.ingest.frames": "WARC and ARC, below",
    "crawl2llm.text.unicode_scripts": "one class of characters",
    "crawl2llm.filters.pii.checksummed": "IDS, below",
    "crawl2llm.filters.pii.credentials": "FORMS, below",
    "crawl2llm.training.gpus": "names of GPUs",
    "crawl2llm.commands.serve.chat_tokens": "alternatives of one character each",
    "crawl2llm.core.retries": "a word of a message",
    "crawl2llm.core.settings": "a pattern that a settings.py declares, of a value of the config",
    "crawl2llm.stages.synthesize.checks": "the config's, only compiled",
    "crawl2llm.stages.synthesize.replies": "the config's, on 300 characters",
    "crawl2llm.stages.tokenize.unigram": "the pre-tokenizer's, below",
}


def _made_expressions() -> Iterator[Expression]:
    """Those of MADE that are not of the config."""
    from crawl2llm.filters.pii import checksummed, credentials
    from crawl2llm.stages.ingest import frames
    from crawl2llm.stages.tokenize import train, unigram
    from crawl2llm.text import normal_forms

    yield Expression("crawl2llm.text.normal_forms.RUN", normal_forms.RUN, ["sub"])
    yield Expression("crawl2llm.text.normal_forms.POSSIBLE_RUN", normal_forms.POSSIBLE_RUN, ["sub"])
    for name, grammar in (("WARC", frames.WARC), ("ARC", frames.ARC)):
        yield Expression(f"crawl2llm.stages.ingest.frames.{name}.first", grammar.first, ["match"])
        yield Expression(f"crawl2llm.stages.ingest.frames.{name}.next", grammar.next, ["search"])
        yield Expression(f"crawl2llm.stages.ingest.frames.{name}.within", grammar.within, ["search"])
    for one in checksummed.IDS_BY_WORDS:
        yield Expression(
            f"crawl2llm.filters.pii.checksummed.{one.name}", checksummed._bounded_pattern(one.pattern), ["finditer"]
        )
    for form in credentials.FORMS:
        yield Expression(f"crawl2llm.filters.pii.credentials.{form.name}", form.pattern, ["finditer"])
    for digits, marks in ((3, "separate"), (0, "separate"), (0, "letters"), (3, "letters")):
        with contextlib.suppress(ValueError):
            pieces: Any = unigram.piece_expression(train.untrained_tokenizer(digits, marks))
            yield Expression(
                f"crawl2llm.stages.tokenize.unigram.piece_expression({digits}, {marks})", pieces, ["finditer"]
            )


def _evaluate(node: ast.expr, module: str) -> Any:
    """What an expression of the code is, by the names of its module. Raises NameError for one of a function's own names."""
    code = compile(ast.Expression(node), module, "eval")
    try:
        return eval(code, {"re": re, "regex": regex})  # noqa: S307 - our own code; modules are imported only if need be
    except NameError:
        return eval(code, vars(importlib.import_module(module)))  # noqa: S307


def _hashable(node: ast.expr, module: str) -> Any:
    """The same, None for what is no constant."""
    try:
        found = _evaluate(node, module)
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
    used, found, made = _methods(), list(_made_expressions()), set[str]()
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
                pattern = _evaluate(node.args[0], module)
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
