"""A filter's page to judge documents on, and the index of these pages: every text escaped, one script, no request.

The content security policy names the script and the styles by their hashes, so that nothing in a crawled text can run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crawl2llm.stages.report.excerpts import clean
from crawl2llm.stages.report.inspect_sampling import DROPPED, EDITED, KEPT, Shown
from crawl2llm.stages.report.page import environment, hashed

HERE = Path(__file__).parent
MOST = 4_500_000  # bytes of a page; texts are cut shorter, and near documents left out, until it has no more
LEAST = 200  # characters that are shown at least
WRONG = {KEPT: "wrongly kept", DROPPED: "wrongly dropped", EDITED: "wrongly edited"}
RIGHT = {KEPT: "rightly kept", DROPPED: "rightly dropped", EDITED: "rightly edited"}


@dataclass(frozen=True)
class Page:
    """`text`, the HTML; `shown`, documents on it; `characters` of a text that are shown."""

    text: str
    shown: int
    characters: int


def source(*names: str) -> str:
    """Files of this folder, one after the other."""
    return "".join((HERE / name).read_text(encoding="utf-8") for name in names)


def policy(style: str, script: str = "") -> str:
    """The content security policy of a page with these styles and this script."""
    return (
        f"default-src 'none'; img-src data:; style-src '{hashed(style)}'; script-src '{hashed(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def trimmed(text: dict[str, Any], limit: int) -> dict[str, Any]:
    """What `excerpts.segments` gives, of at most `limit` characters."""
    parts, left = [], limit
    for piece, kind, what in text["parts"]:
        if left > 0:
            parts.append((piece[:left], kind, what))
        left -= len(piece)
    return {**text, "parts": parts, "cut": text["cut"] or left < 0}


def near_of(one: Shown) -> list[dict[str, Any]]:
    """The rules whose thresholds a document is near, the nearest place first."""
    found = [
        {"rule": rule, "value": value, "threshold": threshold, "distance": distance, "place": place}
        for rule, (value, threshold, distance, place) in one.near.items()
    ]
    return sorted(found, key=lambda each: (each["place"], each["rule"]))


def row(number: int, details: dict[str, Any], limit: int) -> dict[str, Any]:
    """A document as the template shows it."""
    one, verdict = details["one"], details["verdict"]
    kind, rule = one.group
    near = near_of(one)
    rule = rule or (near[0]["rule"] if near else "")
    pair = details["compared"]
    return {
        "number": number,
        "id": one.id,
        "key": f"{kind}|{one.group[1]}|{one.id}",
        "verdict": kind,
        "rule": rule,
        "others": [name for name in verdict.get("rules") or [] if name != one.group[1]],
        "exempt": kind != DROPPED and bool(verdict.get("rules")),
        "value": verdict.get("value") if kind == DROPPED else None,
        "threshold": verdict.get("threshold") if kind == DROPPED else None,
        "detail": clean(verdict.get("detail") or "") if kind == DROPPED else "",
        "similarity": verdict.get("similarity") if kind == DROPPED else None,
        "near": near,
        "random": one.random,
        "url": clean(details["url"] or ""),
        "source": clean(details["source"]),
        "language": clean(details["language"]),
        "date": clean(details["date"] or ""),
        "text": trimmed(details["text"], limit),
        "compared": pair and {**pair, "url": clean(pair["url"])},
        "wrong": WRONG[kind],
        "right": RIGHT[kind],
    }


def ordered(rows: Sequence[dict[str, Any]], sizes: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    """The documents of `details`, nearest first; each with its places in the orders `near` and `random`.

    In the random order the groups take turns by the sizes of their samples, so that whoever stops halfway has marked half of each.
    """
    by_near = sorted(
        (each for each in rows if each["one"].near),
        key=lambda each: (near_of(each["one"])[0]["place"], each["one"].group, near_of(each["one"])[0]["rule"]),
    )
    by_chance = sorted(
        (each for each in rows if each["one"].random is not None),
        key=lambda each: ((each["one"].random + 0.5) / max(1, sizes.get(each["one"].group, 1)), each["one"].group),
    )
    for name, found in (("near_order", by_near), ("random_order", by_chance)):
        for place, each in enumerate(found):
            each[name] = place
    return [*by_near, *(each for each in by_chance if not each["one"].near)]


def page(about: dict[str, Any], details: list[dict[str, Any]], filters: Sequence[str], characters: int) -> Page:
    """The page of a filter. about: `filter, variant, run, groups, exempt`; details: of `excerpts.details`; characters: shown of each text.

    Where it would be larger than MOST, less of each text is shown, and then fewer of the near documents; of the random sample all.
    """
    sizes = {(each["verdict"], each["rule"]): each["sample"] for each in about["groups"]}
    limit, nearest = characters, 1 << 30
    style, script = source("style.css", "inspect.css"), source("inspect.js")
    template = environment().get_template("inspect.html.j2")
    while True:
        some = [
            dict(each)
            for each in details
            if each["one"].random is not None or near_of(each["one"])[0]["place"] < nearest
        ]
        order = ordered(some, sizes)
        rows = [
            {**row(number, each, limit), **{name: each.get(name, "") for name in ("near_order", "random_order")}}
            for number, each in enumerate(order)
        ]
        text = template.render(
            about=about,
            filters=list(filters),
            rows=rows,
            choices={
                name: sorted({each[name] for each in rows if each[name]})
                for name in ("verdict", "rule", "language", "source")
            },
            policy=policy(style, script),
            style=Markup(style),  # noqa: S704 - files of this project
            script=Markup(script),  # noqa: S704
            limit=limit,
        )
        text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        # Of the documents that may be left out; none is left where the last are of the random sample too.
        places = max((one["near"][0]["place"] + 1 for one in rows if one["random"] is None), default=0)
        if len(text.encode()) <= MOST or (limit <= LEAST and not places):
            return Page(text, len(rows), limit)
        if limit > LEAST:
            limit = max(LEAST, limit // 2)
        else:
            nearest = places // 2


def index(variant: str, filters: dict[str, dict[str, Any]], marks: dict[str, Any] | None = None) -> str:
    """The page that leads to those of the filters. filters: the step's summary; marks: of `mark_words.shown`."""
    style = source("style.css", "inspect.css")
    text = environment().get_template("inspect_index.html.j2").render(
        variant=variant, filters=filters, marks=marks, policy=policy(style), style=Markup(style)  # noqa: S704
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode("utf-8")
