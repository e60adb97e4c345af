"""The answers of `crawl2llm trace` in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from crawl2llm.commands.trace import document, spikes
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.console import quantity

Row = dict[str, Any]
SHOWN = 20  # documents, hosts or steps in a text; --json has all
STALE = 5  # steps of other settings that a text names
BEGINNING = 100  # characters of a text that are shown


def numbers(found: Sequence[int]) -> str:
    """`3, 17 and 40`; of many the first, and how many more."""
    if not found:
        return "none"
    some = [f"{one:,}" for one in found[:SHOWN]]
    return ", ".join(some) + (f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else "")


def lines_of_journey(found: Row) -> Iterator[str]:
    """A journey as text."""
    for one in found["dropped"]:
        yield f"dropped by ingest.extract, {one['shard']}: {one['reason']}" + (
            f" ({one['detail']})" if one["detail"] else ""
        )
        yield f"  record {one['record_id']} of {one['file']}"
    for each in found["documents"]:
        first = each["steps"][0]
        yield f"document {each['id']}"
        yield f"  {first['url'] or '(no address)'}"
        place = f"shard {first['shard']}, row {first['row']:,}"
        yield f"  source {first['source']}, {place}, {first['characters']:,} characters, {first['date'] or 'no date'}"
        for said in each["steps"][1:]:
            yield from map("  {}".format, lines_of_step(said, each))
        if not said_to_the_end(each):
            yield "  that is all that is there of it so far"


def said_to_the_end(each: Row) -> bool:
    """Whether a document was dropped, held out, or followed to the training."""
    last = each["steps"][-1]
    return not last.get("kept", True) or last["step"] == "pretrain.train" or last.get("split", "train") != "train"


def lines_of_step(said: Row, each: Row) -> Iterator[str]:
    """One step of a journey as text."""
    step = said["step"]
    if step == "corpus.split":
        yield f"{step:22} {said.get('split', 'dropped')}" + (
            f", duplicate of {said['duplicate_of']}" if "duplicate_of" in said else ""
        )
    elif step == "tokenize.encode":
        yield (
            f"{step:22} {said['tokens']:,} tokens from {said['offset']:,} on of {said['shard']}:{said['source']} "
            f"(stream {said['stream'][0]:,} to {said['stream'][1]:,})"
        )
    elif step == "pretrain.train":
        first, last = said["of_steps"]
        yield f"{step:22} read at step {numbers(said['read_at'])}, of {first:,} to {last:,}"
    else:
        yield f"{step:22} " + ("kept" if said["kept"] else "dropped") + verdict(said)
        for span in said.get("spans", [])[:SHOWN]:
            put = f" → {span['replacement']!r}" if span["replacement"] else ""
            yield f"  {span['rule']}: {document.cut(span['before'], 30)}[{document.cut(span['removed'], 60)}]{put}"
        if keeper := said.get("keeper"):
            yield f"  keeper {keeper['id']} {keeper.get('url', '')}"


def verdict(said: Row) -> str:
    """` by words_min: 20 (threshold 50)`, and other rules that would drop it."""
    out = f" by {said['rule']}" if "rule" in said else ""
    if "value" in said:
        out += f": {said['value']:.6g} (threshold {said['threshold']:.6g})"
    if "similarity" in said:
        out += f", similarity {said['similarity']:.3f}"
    if "detail" in said:
        out += f": {said['detail']}"
    others = [rule for rule in said.get("rules", []) if rule != said.get("rule")]
    return out + (f"; also {', '.join(others)}" if others else "")


def lines_of_step_read(found: Row) -> Iterator[str]:
    """The documents of a training step as text."""
    spiked = found.get("spikes", [])
    out = [one for one in spiked if one["deviations"] > spikes.OUT]
    if spiked and not out:
        yield f"no step stands out ({spikes.OUT:g} standard deviations); the largest:"
    for one in out or spiked:
        side = "above" if one["deviations"] >= 0 else "below"
        yield (
            f"step {one['step']:,}: loss {one['loss']:.4f}, {abs(one['deviations']):.1f} standard deviations {side} the mean of the steps "
            "before"
        )
    twice = len(found["windows"]) * found["window"] - found["tokens"]
    yield (
        f"step {found['step']:,}: {quantity(found['tokens'], 'token')} of {quantity(len(found['documents']), 'document')}, in "
        f"{quantity(len(found['windows']), 'window')} of {found['window']:,}"
        + (f" ({twice:,} are in two windows)" if twice else "")
    )
    for one in found["documents"][:SHOWN]:
        yield f"  {one['tokens']:>7,}  {one['id']}  {one['url'] or '(no address)'}"
        yield f"           {document.cut(one['text'], BEGINNING)}"
    if len(found["documents"]) > SHOWN:
        yield f"  … {len(found['documents']) - SHOWN:,} more: --json lists all"


def lines_until(found: Row) -> Iterator[str]:
    """What was read until a step as text."""
    yield (
        f"until step {found['until']:,}: {quantity(found['tokens_read'], 'token')} read in {quantity(found['windows'], 'window')} of "
        f"{found['window']:,}, "
        f"{found['distinct_tokens']:,} different ones of "
        f"{quantity(found['documents'], 'document')}"
    )
    for what in ("source", "host"):
        yield f"  by {what}:"
        for name, of in list(found[f"by_{what}"].items())[:SHOWN]:
            yield f"    {of['tokens']:>12,} tokens  {of['documents']:>8,} documents  {name or '(none)'}"


def lines(found: Row) -> Iterator[str]:
    """An answer as text."""
    if "until" in found:
        yield from lines_until(found)
    elif "step" in found:
        yield from lines_of_step_read(found)
    elif "tokens" in found:
        one = found["document"]
        yield f"{found['tokens']}: {one['id']}  {one['url'] or '(no address)'}"
        yield f"  {document.cut(one['text'], BEGINNING)}"
        yield f"  read at step {numbers(found['read_at'])}"
    else:
        yield from lines_of_journey(found)


def lines_of_stale(found: Sequence[str]) -> Iterator[str]:
    """What is not of today's settings as text."""
    for one in found[:STALE]:
        yield f"not of today's settings: {one}"
    if len(found) > STALE:
        yield f"and {len(found) - STALE:,} more; is this the config that the run was started with? --configfile names it"


def both_texts(results: Results, found: Row) -> Iterator[str]:
    """Of each dropped duplicate its text and its keeper's, side by side."""
    for each in found["documents"]:
        for said in each["steps"]:
            if "text" in said.get("keeper", {}):
                texts = document.find(results, each["id"])[0][0]["text"]
                yield f"  {'this document':56}   keeper {said['keeper']['id']}"
                yield from (f"  {line}" for line in document.beside(texts, said["keeper"]["text"]))
