"""What a takedown touches: the documents of domains or addresses, what was made from them, and the edit that leaves them out.

All variants of the config are looked at; --variant names one. Documents are found by the lists of the filter `url`, so these are the
documents that the edit drops; texts that a model wrote of such pages are among them. What was made from them is found by the inputs that
manifests name: models, also reward models and set-aside ones, exports, checkpoints and every other result. Changes nothing; --write FILE
writes the list that the edit names.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from crawl2llm.chain import command_line, model_registry, steps, sweep
from crawl2llm.chain import config as configuration
from crawl2llm.chain.early_cutoff import CHECKPOINTS
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.chain.model_registry import EXPORT_STEP
from crawl2llm.chain.project import Project
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.commands.trace import lineage
from crawl2llm.commands.trace.attribution import INDEX_FOLDER
from crawl2llm.commands.trace.lineage import Lineage
from crawl2llm.commands.trace.results import Results, add_options, matching_rows, open_results
from crawl2llm.commands.trace.words import MOST_LINES
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import format_quantity
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import write_atomically
from crawl2llm.core.nested_dicts import has_path
from crawl2llm.core.phrases import and_more
from crawl2llm.filters.url.lists import Lists, PublicSuffixes, judged_url
from crawl2llm.filters.url.lists import parse_domains as listed_domains
from crawl2llm.filters.url.settings import ScoreSettings
from crawl2llm.formats.documents import SPLITS, open_parquet, rows
from crawl2llm.text.group_split import synthesis_source, url_host
from crawl2llm.workflow.unused import RESULTS

LIST_FILE = "takedown.txt"
PAGE_FOLDER = "report/now"  # below a variant's results: the page of `crawl2llm report`, which is no step's
REMAINS = {  # what a run with the edit does not remove, by its key in the answer
    "exports": "files to give away that hold such a model; copies that were given away are not known here",
    "set_aside": "set aside, until `crawl2llm clean models` removes it",
    "checkpoints": "checkpoints, until `crawl2llm clean` or a person removes them",
    "not_known": "models and exports whose input is not there as it was, and trainings that did not end: nobody knows of them",
    "caches": "caches, and pages made by `crawl2llm report`, that may hold their text, or what a model wrote of it",
}
NOT_FOLLOWED = "not followed"
READABLE_FATES = ("train", "validation", NOT_FOLLOWED)  # fates of documents that a model may read


def documents_on_lists(results: Results, lists: Lists) -> dict[str, dict[str, Any]]:
    """id → `url, source, curated, shard` of the documents that are on the lists; of one that a model wrote also the step, `written_by`, and
    the URL of its `page`.
    """
    documents: dict[str, dict[str, Any]] = {}
    for shard, path in results.shard_tables(DOCUMENTS):
        with open_parquet(path) as file:
            for batch in file.iter_batches(columns=["id", "url", "source", "curated", "metadata"]):
                for row in batch.to_pylist():
                    url = judged_url(row)
                    name = url_host(url)
                    if name and (lists.listed_domain(name) or lists.listed_address(url)):
                        origin = synthesis_source(row)
                        written = {"written_by": origin["by"], "page": url} if origin else {}
                        facts = {key: row[key] for key in ("id", "url", "source", "curated")}
                        documents[row["id"]] = {**facts, "shard": shard, **written}
    return documents


def add_fates(results: Results, documents: dict[str, dict[str, Any]]) -> None:
    """Add what became of each document: `fate`, a filter that dropped it, or `train` or `validation`, and its `tokens`."""
    for shard in {document["shard"] for document in documents.values()}:
        corpus = results.read_manifest("corpus.write", shard)
        if corpus is None:
            continue
        for row in rows(corpus.file(f"dropped/{shard}.parquet"), ["id", "stage"]):
            if row["id"] in documents:
                documents[row["id"]]["fate"] = row["stage"]
        for split in SPLITS:  # a corpus that is not encoded yet has them all the same
            if (name := f"{split}/{shard}.parquet") in corpus.files:
                for row in rows(corpus.file(name), ["id"]):
                    if row["id"] in documents:
                        documents[row["id"]]["fate"] = split
        encoded = results.read_manifest("tokenize.encode", shard)
        for name in sorted(encoded.files if encoded else ()):
            if encoded and name.endswith(".docs.parquet"):
                for row in rows(encoded.file(name), ["id", "tokens"]):
                    if row["id"] in documents:
                        documents[row["id"]] |= {"fate": name.split("/")[0], "tokens": row["tokens"]}


def find_copies(results: Results, documents: dict[str, dict[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """What has the text of a touched document under an address that is on no list, each id with that of the touched one: (documents that
    were dropped as its duplicates, documents that it was dropped as a duplicate of and that stay).

    The first are judged again without it, and by them what is to be left out may come back. A touched one that `stays` has no such.
    """
    dropped_copies: dict[str, str] = {}
    kept_originals: dict[str, str] = {}
    for row in dropped_rows(results, ["id", "duplicate_of"]):
        duplicate_of = row["duplicate_of"]
        if duplicate_of in documents and row["id"] not in documents and not documents[duplicate_of]["stays"]:
            dropped_copies[row["id"]] = duplicate_of
        elif duplicate_of and duplicate_of not in documents and row["id"] in documents:
            kept_originals[duplicate_of] = row["id"]
    dropped_originals = {
        row["id"] for row in (dropped_rows(results, ["id"]) if kept_originals else ()) if row["id"] in kept_originals
    }
    return dropped_copies, {key: of for key, of in kept_originals.items() if key not in dropped_originals}


def dropped_rows(results: Results, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of all documents that are not in the corpus."""
    for shard in results.shards:
        if corpus := results.read_manifest("corpus.write", shard):
            yield from rows(corpus.file(f"dropped/{shard}.parquet"), columns)


def document_addresses(groups: list[list[Results]], names: Iterable[str]) -> list[dict[str, Any]]:
    """`id, url, source` of documents of the variants, by their ids; each once."""
    ids, rows_by_id = sorted(set(names)), dict[str, dict[str, Any]]()
    for path in sorted({path for group in groups for _, path in group[0].shard_tables(DOCUMENTS)}) if ids else ():
        for row in matching_rows(path, "id", ids, ["id", "url", "source"]):
            rows_by_id[row["id"]] = {key: row[key] for key in ("id", "url", "source")}
    return [rows_by_id[name] for name in ids if name in rows_by_id]


def takedown_edit(config: dict[str, Any], listed: str, kind: str) -> dict[str, Any]:
    """The config edit that drops them: the filter `url` first, with one more list; where a variant sets these, there too."""
    swept = sweep.sweep_variants(config)
    out = _edit_of(config, config, listed, kind)
    own_edits = {
        name: _edit_of(overlay, config, listed, kind)
        for name, overlay in config["variants"].items()
        if swept.get(name) != overlay
    }
    own_edits = {name: each for name, each in own_edits.items() if each}
    return {**out, **({"variants": own_edits} if own_edits else {})}


def _edit_of(config: dict[str, Any], main: dict[str, Any], listed: str, kind: str) -> dict[str, Any]:
    """The edit of what a config or an overlay itself sets."""
    out: dict[str, Any] = {}
    if "filters" in config and (config is main or "url" not in config["filters"]):
        out["filters"] = config["filters"] if "url" in config["filters"] else ["url", *config["filters"]]
    if has_path(config, f"url.score.{kind}"):
        out["url"] = {"score": {kind: [*config["url"]["score"][kind], listed]}}
    return out


def apply_edit(config: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """The complete config with an edit; what `sweep` stands for is made again."""
    swept = sweep.sweep_variants(config)
    own_variants = {name: overlay for name, overlay in config["variants"].items() if swept.get(name) != overlay}
    return configuration.validate(configuration.merge_dicts({**config, "variants": own_variants}, changed))


def variants_without_edit(whole: dict[str, Any], listed: str, kind: str) -> list[str]:
    """The variants of an edited config that would not drop them."""
    configs = {name: config_of_variant(whole, name) for name in ("main", *whole["variants"])}
    return [
        name
        for name, config in configs.items()
        if "url" not in config["filters"] or listed not in config["url"]["score"][kind]
    ]


def steps_to_rerun(results: Results, whole: dict[str, Any]) -> dict[str, list[str]]:
    """By variant the steps that would run with an edited config, in order; what variants share counts as the first one's."""
    project_before = results.project
    project = Project(
        whole, project_before.held if whole["variants"].keys() == project_before.variants.keys() - {"main"} else None
    )
    steps_by_variant = {}
    for name, config in project.variants.items():
        steps_by_variant[name] = [
            step
            for step in steps.used_steps(config)
            for task in steps.result_ids(step, config)[:1]
            if project.step_folder(name, step, task).split("/")[1] == name
            and (
                name not in project_before.variants
                or not steps.is_used(step, project_before.variants[name])
                or task not in steps.result_ids(step, project_before.variants[name])
                or project.fingerprint(name, step, task) != project_before.fingerprint(name, step, task)
            )
        ]
    return {name: names for name, names in steps_by_variant.items() if names}


def distinct_corpora(results: Results, variant: str | None) -> tuple[list[list[Results]], list[str]]:
    """(the variants of each distinct corpus, those of which no document was read yet); variant: of that one alone."""
    groups: dict[tuple[str, ...], list[Results]] = {}
    unread = []
    for name in [variant] if variant else results.project.variants:
        try:
            variant_results = results.of_variant(name)
        except InputError:
            unread.append(name)
            continue
        key = tuple(
            variant_results.project.step_folder(name, step) for step in (DOCUMENTS, "corpus.write", "tokenize.encode")
        )
        groups.setdefault(key, []).append(variant_results)
    return list(groups.values()), unread


def first_manifests(results: Results, documents: dict[str, dict[str, Any]], split: str = "") -> Iterator[Path]:
    """The manifests of what first holds the documents: of ingest.extract, and of what wrote them; with a split those of corpus.write."""
    for document in documents.values():
        if split:
            if document.get("fate") == split:
                yield results.manifest_path("corpus.write", document["shard"])
            continue
        yield results.manifest_path(DOCUMENTS, document["shard"])
        if step := document.get("written_by"):
            yield results.manifest_path(step)


def results_reached(graph: Lineage, read: set[Path], heldout: set[Path], trained: set[Path]) -> dict[str, Any]:
    """What was made from documents, by lineage. read: where they are before the corpus; heldout, trained: the shards of the corpus with
    them on that side.
    """
    trained_results = graph.made_from(trained, lineage.enters_training)
    all_reached = (
        trained_results
        | graph.made_from(heldout, lineage.enters_heldout)
        | graph.made_from(read, lineage.enters_documents)
    )
    models = [result for result in trained_results if result.step in model_registry.MAKERS]
    exports = [result for result in trained_results if result.step == EXPORT_STEP]
    lost = [
        result
        for result in graph.unknown_results() - trained_results
        if result.step in (*model_registry.MAKERS, EXPORT_STEP)
    ]
    paths = {result.config_manifest for result in trained_results}
    trainings = list(checkpoint_folders.trainings_below(CHECKPOINTS))
    checkpoints = {folder for folder, manifest, _ in trainings if manifest in paths}
    known_manifests = {result.config_manifest for result in graph.manifests}
    unended_folders = {folder for folder, _, _ in trainings} - {
        folder for folder, manifest, _ in trainings if manifest in known_manifests
    }
    return {
        "models": [result.name for result in lineage.sort_results(models)],
        "exports": [str(result.manifest.parent / result.task) for result in lineage.sort_results(exports)],
        "checkpoints": sorted(map(str, checkpoints)),
        "set_aside": sorted(str(result.manifest.parent) for result in all_reached if result.is_aside),
        "results": dict(lineage.steps_by_variant(all_reached)),
        "not_known": [
            *(str(result.manifest) for result in lineage.sort_results(lost)),
            *sorted(map(str, unended_folders)),
        ],
        "caches": sorted(
            str(path)
            for path in (*Path(INDEX_FOLDER).parent.glob("*"), *RESULTS.glob(f"*/{PAGE_FOLDER}"))
            if path.is_dir()
        ),
    }


def takedown_report(
    results: Results, domains: list[str], urls: list[str], listed: Path | None, variant: str | None = None
) -> dict[str, Any]:
    """What `main` tells. listed: where the list is to lie. variant: the one that is looked at; none: all."""
    entries, kind = ([*domains], "domains") if domains else ([*urls], "folders")
    config = results.project.variants["main"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ("domains" if domains else "urls")).write_text(
            "".join(f"{entry}\n" for entry in entries), encoding="utf-8"
        )
        list_path = str(folder / "domains" if domains else folder)
        lists = Lists(ScoreSettings.model_validate({kind: [list_path]}))
        documents: list[dict[str, Any]] = []
        counts_by_variant: dict[str, dict[str, Any]] = {}
        places: dict[str, set[Path]] = {split: set() for split in ("", "validation", "train")}
        groups, unread = distinct_corpora(results, variant)
        copied, keepers = dict[str, str](), dict[str, str]()
        # What is on the lists, by the folder of the documents.
        listed_by_folder: dict[str, dict[str, dict[str, Any]]] = {}
        for group in groups:
            first, names = group[0], [results_of_variant.variant for results_of_variant in group]
            place = first.project.step_folder(first.variant, DOCUMENTS)
            if place not in listed_by_folder:
                listed_by_folder[place] = documents_on_lists(first, lists)
            corpus_documents = {
                key: {**document, "variants": names} for key, document in listed_by_folder[place].items()
            }
            add_fates(first, corpus_documents)
            skipping = steps.skipped_by("url.select", first.config)
            for document in corpus_documents.values():
                document["stays"] = bool(document["curated"]) or document["source"] in skipping
            dropped_copies, kept_originals = find_copies(first, corpus_documents)
            copied, keepers = copied | dropped_copies, keepers | kept_originals
            fate = Counter(document.get("fate", NOT_FOLLOWED) for document in corpus_documents.values())
            tokens = sum(
                document.get("tokens", 0) for document in corpus_documents.values() if document.get("fate") == "train"
            )
            counts = {
                "documents": len(corpus_documents),
                "by_fate": dict(fate.most_common()),
                "training_tokens": tokens,
            }
            counts_by_variant |= dict.fromkeys(names, counts)
            documents += corpus_documents.values()
            for split, paths in places.items():
                paths |= {*first_manifests(first, corpus_documents, split)}
        copies_of = [{**row, "duplicate_of": copied[row["id"]]} for row in document_addresses(groups, copied)]
        originals = [{**row, "duplicate": keepers[row["id"]]} for row in document_addresses(groups, keepers)]
        readable = [document for document in documents if document.get("fate", NOT_FOLLOWED) in READABLE_FATES]
        changes = any(not document["stays"] for document in readable)
        whole = apply_edit(config, takedown_edit(config, list_path, kind)) if changes else {}
        short = variants_without_edit(whole, list_path, kind) if changes else []
        runs = steps_to_rerun(results, whole) if changes else {}
    return {
        "documents": documents,
        "by_variant": counts_by_variant,
        "not_read": unread,
        "not_of_config": sorted(
            folder.name
            for folder in RESULTS.glob("*")
            if folder.is_dir() and folder.name not in results.project.variants
        ),
        **results_reached(Lineage(), *places.values()),
        "curated": len({document["id"] for document in documents if document["curated"]}),
        "stays": len({document["id"] for document in readable if document["stays"]}),
        "copies": copies_of,
        "originals": originals,
        "list": entries,
        "edit": takedown_edit(config, str(listed or LIST_FILE), kind) if changes else {},
        "lacking": short,
        "runs_again": runs,
    }


def takedown_lines(report: dict[str, Any]) -> Iterator[str]:
    """The answer as text."""
    documents = report["documents"]
    for name in report["not_read"]:
        yield f"variant {name}: no document was read yet"
    for name in report["not_of_config"]:
        yield f"results/{name}: not looked at, since the config has no variant of that name (crawl2llm clean lists such folders)"
    if not documents:
        yield f"no document is from {', '.join(report['list'])}"
        return
    for names, counts in _group_equal(report["by_variant"]):
        variants_text = f" ({_variants_text(names)})" if len(report["by_variant"]) > 1 else ""
        fate = ", ".join(f"{number:,} {name}" for name, number in counts["by_fate"].items()) or "none"
        documents_text = format_quantity(counts["documents"], "document")
        tokens_text = format_quantity(counts["training_tokens"], "token")
        yield f"{documents_text}{variants_text}: {fate}; {tokens_text} of the training text"
    for document in documents[:MOST_LINES]:
        yield f"  {document.get('fate', ''):12} {document.get('tokens', 0):>8,} tokens  {document['url'] or '(no address)'}"
    if len(documents) > MOST_LINES:
        yield f"  … {len(documents) - MOST_LINES:,} more: --json lists all"
    if written := [document for document in documents if "written_by" in document]:
        yield f"texts among them that a model wrote of such pages: {len(written):,}"
    yield from _reached_lines(report)
    skipped_line = (
        f"documents of a source whose documents the filter url keeps (curated, or with skip_filters): {report['stays']:,}; take them "
        "out of the source's files"
    )
    if report["originals"]:
        yield (
            f"documents of other addresses that these were dropped as duplicates of, and whose text stays: {len(report['originals']):,}. "
            "To leave them out, list them too:"
        )
        yield from _url_lines(report["originals"])
    if not report["edit"]:
        yield "nothing to do: " + (
            skipped_line if report["stays"] else "none of them is in a training or validation text"
        )
        return
    if report["stays"]:
        yield skipped_line
    yield "the edit that leaves them out:"
    yield from (
        f"  {line}" for line in yaml.safe_dump(report["edit"], sort_keys=False, default_flow_style=None).splitlines()
    )
    if report["lacking"]:
        yield f"sweep sets the filters or lists of {_variants_text(report['lacking'])}: add url and the list there too, by hand"
    yield f"with {', '.join(report['list'])} in the list (--write FILE writes it)"
    if copied := report["copies"]:
        yield (
            f"documents of other addresses that were dropped as duplicates of these: {len(copied):,}. With the edit one of each text may "
            "stand in their place. To leave them out, list them too:"
        )
        yield from _url_lines(copied)
    for names, again_steps in _group_equal(report["runs_again"]):
        yield f"what would run again{f' of {_variants_text(names)}' if names != ['main'] else ''}: {', '.join(again_steps)}"


def _reached_lines(report: dict[str, Any]) -> Iterator[str]:
    """What was made from the documents."""
    yield f"models that learnt from them: {', '.join(report['models']) or 'none'}"
    for key, words in REMAINS.items():
        if report[key]:
            yield f"{words}: {and_more(report[key], MOST_LINES)}"
    for variant, names in report["results"].items():
        yield f"results of {variant} that hold something of them or were made with them: {_steps_text(names)}"


def _url_lines(documents: list[dict[str, Any]]) -> Iterator[str]:
    yield from (f"  {document['url'] or '(no address)'}" for document in documents[:MOST_LINES])
    if len(documents) > MOST_LINES:
        yield f"  … {len(documents) - MOST_LINES:,} more: --json lists all"


def _group_equal(by: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """(variants, what is told of each of them), in order."""
    distinct: list[Any] = []
    for value in by.values():
        if value not in distinct:
            distinct.append(value)
    for value in distinct:
        yield [name for name in by if by[name] == value], value


def _steps_text(names: list[str]) -> str:
    """`4 steps, corpus.split to report.render`."""
    return f"{format_quantity(len(names), 'step')}, {names[0]}" + (f" to {names[-1]}" if names[1:] else "")


def _variants_text(names: list[str]) -> str:
    """`main, small and 7 more variants`."""
    return and_more(names, 3, "variants")


def check_domains(domains: list[str]) -> None:
    """InputError for a domain with a scheme or a path, which would stand for its whole host, and for a public suffix, which would not stand
    for the hosts below it.
    """
    public = PublicSuffixes()
    for domain in domains:
        if any(mark in domain for mark in "/?#"):
            raise InputError(
                f"--domain is {domain!r}; it is a domain without scheme and path, such as {url_host(domain) or 'example.org'}, and stands "
                f"for all its pages. For an address: --url {domain}"
            )
        for name, pattern in listed_domains(domain):
            if name in public and not pattern:
                raise InputError(
                    f"--domain is {domain!r}, a public suffix, below which everybody has hosts. For all of them: --domain .{name}; "
                    f"for the host {name} alone: --url {name}"
                )


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm forget", __doc__, "--domain difflib.docs.demo.example --write takedown.txt"
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--domain", nargs="+", default=[], help="domains: themselves and all hosts below them")
    choice.add_argument("--url", nargs="+", default=[], help="addresses: a host and the beginning of a path")
    parser.add_argument("--write", type=Path, help="write the list there: a file of domains, or with --url a folder")
    add_options(parser, all_variants=True)
    args = parser.parse_args(argv)
    check_domains(args.domain)
    list_path = args.write
    with contextlib.ExitStack() as stack:
        target = list_path.absolute() if list_path else None
        results = open_results(args, stack)
        report = takedown_report(results, args.domain, args.url, list_path, args.variant)
        if target:
            file = target if args.domain else target / "urls"
            write_atomically(file, "".join(f"{entry}\n" for entry in report["list"]))
    return command_line.print_findings(args, report, lambda: takedown_lines(report))


if __name__ == "__main__":
    raise SystemExit(main())
