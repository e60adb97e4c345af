"""Render the demo's crawl: WARC files of this machine's own documentation, and a curated text, without any network.

Writes `crawl-00000.warc.gz` … (pydoc pages of the standard library and of installed packages, and the project's own pages),
`gold.jsonl` (what the own pages are and say, for tests of later stages) and `curated.jsonl` (Python's language reference).
"""

from __future__ import annotations

import argparse
import html
import json
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.crawl import document, modules, own_pages, topics
from crawl2llm.stages.crawl.answers import Answer, Archive
from crawl2llm.stages.crawl.settings import RenderSettings


def documentation_page(row: dict[str, Any], package: str) -> Answer:
    """A module's page: pydoc's HTML as the main article of the site's layout. row: {module, html, summary}."""
    name = row["module"]
    parents = [name.rsplit(".", depth)[0] for depth in range(name.count("."), 0, -1)]
    listed = [("/", "Modules"), *((f"/{parent}.html", parent) for parent in parents)]
    page = own_pages.read_template().substitute(
        language="en",
        direction="ltr",
        charset='<meta charset="utf-8">\n',
        title=html.escape(name),
        site=document.SITE,
        description=row["summary"].replace('"', "&quot;"),
        navigation=own_pages.link_items(iter(listed)),
        banner="",
        article=row["html"],
        aside="",
        footer=f"Documentation of {html.escape(package)}. Rendered by pydoc.",
    )
    return Answer(document.page_url(name), page.encode("utf-8", "xmlcharrefreplace"), "text/html; charset=utf-8")


def write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    """Write JSON Lines; returns their number."""
    count = 0
    with path.open("w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def write_own_pages(archive: Archive, path: Path) -> tuple[Counter[str], Counter[str], int]:
    """Write the own pages and their gold entries; returns pages by variant, pages by language, and bytes of their bodies."""
    variants: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    size = 0
    with path.open("w", encoding="utf-8") as handle:
        for number, page in enumerate(own_pages.read_pages()):
            answer, gold = own_pages.answer_with_gold(page)
            if number == 0:
                archive.write_request(answer.url)
            archive.write_response(answer)
            if number == 0:
                archive.write_metadata(answer.url)
            handle.write(json.dumps(gold, ensure_ascii=False) + "\n")
            variants[gold["variant"]] += 1
            languages[gold["language"]] += 1
            size += len(answer.body)
    return variants, languages, size


def check_packages(absent: list[str]) -> None:
    """Raises InputError for a package that is not installed and that only the config can have named: its name may be misspelt.

    An environment may lack one of the default, and that is no mistake of anybody's.
    """
    usual = RenderSettings().packages
    for name in absent:
        if name not in usual:
            near = get_close_matches(name, {*usual, *packages_distributions()}, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InputError(
                f"crawl.render.packages names {name!r}, and no package of that name is installed in this environment{hint}: "
                "give its import name, remove it, or install it"
            )


def body(args: argparse.Namespace, settings: RenderSettings, manifest: Manifest) -> list[Path]:
    folder = args.manifest.parent
    gold, curated = folder / "gold.jsonl", folder / "curated.jsonl"
    topic_count = write_lines(curated, topics.documents())
    batches, over_limit, absent = modules.module_batches(
        settings.standard_library, settings.packages, settings.max_pages_per_package
    )
    check_packages(absent)
    dropped = Counter(dict.fromkeys((*modules.OUTCOMES, "package_limit", "size_limit", "not_installed"), 0))
    dropped.update(package_limit=over_limit, not_installed=len(absent))
    if absent:
        log.info("not installed, left out: %s", ", ".join(absent))
    progress = Progress(sum(len(batch.modules) for batch in batches), "modules")
    by_package: Counter[str] = Counter()
    limit, room = settings.max_page_kilobytes * 1000, settings.max_megabytes * 1_000_000
    with Archive(folder, settings.files) as archive:
        variants, languages, size = write_own_pages(archive, gold)
        for batch, row in modules.render_modules(batches, limit, settings.module_seconds, settings.workers):
            progress.add(note=batch.package)
            if "error" in row:
                dropped[row["error"]] += 1
                if row["error"] != "import_failed":
                    log.info("%s: %s %s", row["module"], row["error"], row["detail"])
                continue
            answer = documentation_page(row, batch.package)
            if size + len(answer.body) > room:
                dropped["size_limit"] += 1
                continue
            size += len(answer.body)
            by_package[batch.package] += 1
            archive.write_response(answer)
    pages = by_package.total() + variants.total()
    manifest.counts = {"in": pages + dropped.total(), "kept": pages, "dropped": dict(dropped)}
    manifest.summary = {
        "own_pages_by_variant": dict(variants),
        "own_pages_by_language": dict(languages),
        "documentation_pages_by_package": dict(by_package),
        "html_bytes": size,
        "not_installed": absent,
        **(
            {"notes": [f"crawl.render.packages has packages that are not installed: {', '.join(absent)}"]}
            if absent
            else {}
        ),
        "curated_documents": topic_count,
        "records_by_file": {path.name: number for path, number in zip(archive.paths, archive.records, strict=True)},
    }
    return [*archive.paths, gold, curated]


main = Program("crawl.render", __doc__, RenderSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
