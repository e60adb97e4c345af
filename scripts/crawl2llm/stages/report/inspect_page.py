"""A filter's page to judge documents on, and the index of these pages: every text escaped, one script, no request.

The content security policy names the script and the styles by their hashes, so that nothing in a crawled text can run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crawl2llm.stages.report.excerpts import clean_text
from crawl2llm.stages.report.inspect_sampling import DROPPED, EDITED, KEPT, ShownDocument
from crawl2llm.stages.report.page import csp_hash, template_environment

HERE = Path(__file__).parent
MOST = 4_500_000  # bytes of a page; texts are cut shorter, and near documents left out, until it has no more
LEAST = 200  # characters that are shown at least
WRONG_LABELS = {KEPT: "wrongly kept", DROPPED: "wrongly dropped", EDITED: "wrongly edited"}
RIGHT_LABELS = {KEPT: "rightly kept", DROPPED: "rightly dropped", EDITED: "rightly edited"}


@dataclass(frozen=True)
class Page:
    """`text`, the HTML; `shown`, documents on it; `characters` of a text that are shown."""

    text: str
    shown: int
    characters: int


def read_files(*names: str) -> str:
    """Files of this folder, one after the other."""
    return "".join((HERE / name).read_text(encoding="utf-8") for name in names)


def security_policy(style: str, script: str = "") -> str:
    """The content security policy of a page with these styles and this script."""
    return (
        f"default-src 'none'; img-src data:; style-src '{csp_hash(style)}'; script-src '{csp_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def trim_text(text: dict[str, Any], limit: int) -> dict[str, Any]:
    """What `excerpts.text_segments` gives, of at most `limit` characters."""
    parts, room = [], limit
    for piece, kind, label in text["parts"]:
        if room > 0:
            parts.append((piece[:room], kind, label))
        room -= len(piece)
    return {**text, "parts": parts, "cut": text["cut"] or room < 0}


def near_rules(document: ShownDocument) -> list[dict[str, Any]]:
    """The rules whose thresholds a document is near, the nearest place first."""
    rules = [
        {"rule": rule, "value": value, "threshold": threshold, "distance": distance, "place": place}
        for rule, (value, threshold, distance, place) in document.near.items()
    ]
    return sorted(rules, key=lambda rule_row: (rule_row["place"], rule_row["rule"]))


def document_row(number: int, details: dict[str, Any], limit: int) -> dict[str, Any]:
    """A document as the template shows it."""
    document, verdict = details["document"], details["verdict"]
    kind, rule = document.group
    near = near_rules(document)
    rule = rule or (near[0]["rule"] if near else "")
    pair = details["compared"]
    return {
        "number": number,
        "id": document.id,
        "key": f"{kind}|{document.group[1]}|{document.id}",
        "verdict": kind,
        "rule": rule,
        "others": [name for name in verdict.get("rules") or [] if name != document.group[1]],
        "exempt": kind != DROPPED and bool(verdict.get("rules")),
        "value": verdict.get("value") if kind == DROPPED else None,
        "threshold": verdict.get("threshold") if kind == DROPPED else None,
        "detail": clean_text(verdict.get("detail") or "") if kind == DROPPED else "",
        "similarity": verdict.get("similarity") if kind == DROPPED else None,
        "near": near,
        "random": document.random,
        "url": clean_text(details["url"] or ""),
        "source": clean_text(details["source"]),
        "language": clean_text(details["language"]),
        "date": clean_text(details["date"] or ""),
        "text": trim_text(details["text"], limit),
        "compared": pair and {**pair, "url": clean_text(pair["url"])},
        "wrong": WRONG_LABELS[kind],
        "right": RIGHT_LABELS[kind],
    }


def order_rows(rows: Sequence[dict[str, Any]], sizes: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    """The documents of `details`, nearest first; each with its places in the orders `near` and `random`.

    In the random order the groups take turns by the sizes of their samples, so that whoever stops halfway has marked half of each.
    """
    by_near = sorted(
        (entry for entry in rows if entry["document"].near),
        key=lambda each: (
            near_rules(each["document"])[0]["place"],
            each["document"].group,
            near_rules(each["document"])[0]["rule"],
        ),
    )
    by_chance = sorted(
        (each for each in rows if each["document"].random is not None),
        key=lambda each: (
            (each["document"].random + 0.5) / max(1, sizes.get(each["document"].group, 1)),
            each["document"].group,
        ),
    )
    for name, rows_in_order in (("near_order", by_near), ("random_order", by_chance)):
        for place, each in enumerate(rows_in_order):
            each[name] = place
    return [*by_near, *(each for each in by_chance if not each["document"].near)]


def filter_page(about: dict[str, Any], details: list[dict[str, Any]], filters: Sequence[str], characters: int) -> Page:
    """The page of a filter. about: `filter, variant, run, groups, exempt`; details: of `excerpts.document_details`; characters: shown of
    each text.

    Where it would be larger than MOST, less of each text is shown, and then fewer of the near documents; of the random sample all.
    """
    sizes = {(entry["verdict"], entry["rule"]): entry["sample"] for entry in about["groups"]}
    limit, nearest = characters, 1 << 30
    style, script = read_files("style.css", "inspect.css"), read_files("inspect.js")
    template = template_environment().get_template("inspect.html.j2")
    while True:
        selected = [
            dict(each)
            for each in details
            if each["document"].random is not None or near_rules(each["document"])[0]["place"] < nearest
        ]
        order = order_rows(selected, sizes)
        rows = [
            {
                **document_row(number, each, limit),
                **{name: each.get(name, "") for name in ("near_order", "random_order")},
            }
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
            policy=security_policy(style, script),
            style=Markup(style),  # noqa: S704 - files of this project
            script=Markup(script),  # noqa: S704
            limit=limit,
        )
        text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        # Of the documents that may be left out; none is left where the last are of the random sample too.
        places = max((page_row["near"][0]["place"] + 1 for page_row in rows if page_row["random"] is None), default=0)
        if len(text.encode()) <= MOST or (limit <= LEAST and not places):
            return Page(text, len(rows), limit)
        if limit > LEAST:
            limit = max(LEAST, limit // 2)
        else:
            nearest = places // 2


def index_page(variant: str, filters: dict[str, dict[str, Any]], marks: dict[str, Any] | None = None) -> str:
    """The page that leads to those of the filters. filters: the step's summary; marks: of `mark_words.marks_for_page`."""
    style = read_files("style.css", "inspect.css")
    text = template_environment().get_template("inspect_index.html.j2").render(
        variant=variant, filters=filters, marks=marks, policy=security_policy(style), style=Markup(style)  # noqa: S704
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode("utf-8")
