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

from crawl2llm.chain import command_line, steps, sweep
from crawl2llm.chain import config as configuration
from crawl2llm.chain.early_cutoff import CHECKPOINTS
from crawl2llm.chain.model_registry import EXPORT_STEP
from crawl2llm.chain.project import Project
from crawl2llm.commands.trace import lineage
from crawl2llm.commands.trace.attribution import FOLDER
from crawl2llm.commands.trace.lineage import Lineage
from crawl2llm.commands.trace.results import Results, matching, opened_results, options
from crawl2llm.commands.trace.words import SHOWN
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import quantity
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import write_atomically
from crawl2llm.core.nested_dicts import has
from crawl2llm.filters.url.lists import Lists, PublicSuffixes, judged_url
from crawl2llm.filters.url.lists import domains as listed_domains
from crawl2llm.formats.documents import SPLITS, opened, rows
from crawl2llm.text.group_split import host, made_from
from crawl2llm.workflow.unused import RESULTS

FILE = "takedown.txt"
NOW = "report/now"  # below a variant's results: the page of `crawl2llm report`, which is no step's
REACHED = {  # what a run with the edit does not remove, by its key in the answer
    "exports": "files to give away that hold such a model; copies that were given away are not known here",
    "set_aside": "set aside, until `crawl2llm clean models` removes it",
    "checkpoints": "checkpoints, until `crawl2llm clean` or a person removes them",
    "not_known": "models and exports whose input is not there as it was, and trainings that did not end: nobody knows of them",
    "caches": "caches, and pages made by `crawl2llm report`, that may hold their text, or what a model wrote of it",
}
NOT_FOLLOWED = "not followed"
HELD = ("train", "validation", NOT_FOLLOWED)  # fates of documents that a model may read


def touched(results: Results, lists: Lists) -> dict[str, dict[str, Any]]:
    """id → `url, source, curated, shard` of the documents that are on the lists; of one that a model wrote also the step, `written_by`, and
    the URL of its `page`.
    """
    found: dict[str, dict[str, Any]] = {}
    for shard, path in results.tables(steps.DOCUMENTS):
        with opened(path) as file:
            for batch in file.iter_batches(columns=["id", "url", "source", "curated", "metadata"]):
                for row in batch.to_pylist():
                    url = judged_url(row)
                    name = host(url)
                    if name and (lists.domain(name) or lists.url(url)):
                        made = made_from(row)
                        written = {"written_by": made["by"], "page": url} if made else {}
                        facts = {key: row[key] for key in ("id", "url", "source", "curated")}
                        found[row["id"]] = {**facts, "shard": shard, **written}
    return found


def fates(results: Results, found: dict[str, dict[str, Any]]) -> None:
    """Add what became of each document: `fate`, a filter that dropped it, or `train` or `validation`, and its `tokens`."""
    for shard in {one["shard"] for one in found.values()}:
        written = results.made("corpus.write", shard)
        if written is None:
            continue
        for row in rows(written.file(f"dropped/{shard}.parquet"), ["id", "stage"]):
            if row["id"] in found:
                found[row["id"]]["fate"] = row["stage"]
        for split in SPLITS:  # a corpus that is not encoded yet has them all the same
            if (name := f"{split}/{shard}.parquet") in written.files:
                for row in rows(written.file(name), ["id"]):
                    if row["id"] in found:
                        found[row["id"]]["fate"] = split
        encoded = results.made("tokenize.encode", shard)
        for name in sorted(encoded.files if encoded else ()):
            if encoded and name.endswith(".docs.parquet"):
                for row in rows(encoded.file(name), ["id", "tokens"]):
                    if row["id"] in found:
                        found[row["id"]] |= {"fate": name.split("/")[0], "tokens": row["tokens"]}


def copies(results: Results, found: dict[str, dict[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """What has the text of a touched document under an address that is on no list, each id with that of the touched one: (documents that
    were dropped as its duplicates, documents that it was dropped as a duplicate of and that stay).

    The first are judged again without it, and by them what is to be left out may come back. A touched one that `stays` has no such.
    """
    back: dict[str, str] = {}
    stay: dict[str, str] = {}
    for row in dropped(results, ["id", "duplicate_of"]):
        other = row["duplicate_of"]
        if other in found and row["id"] not in found and not found[other]["stays"]:
            back[row["id"]] = other
        elif other and other not in found and row["id"] in found:
            stay[other] = row["id"]
    gone = {row["id"] for row in (dropped(results, ["id"]) if stay else ()) if row["id"] in stay}
    return back, {key: of for key, of in stay.items() if key not in gone}


def dropped(results: Results, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of all documents that are not in the corpus."""
    for shard in results.shards:
        if written := results.made("corpus.write", shard):
            yield from rows(written.file(f"dropped/{shard}.parquet"), columns)


def addresses(groups: list[list[Results]], names: Iterable[str]) -> list[dict[str, Any]]:
    """`id, url, source` of documents of the variants, by their ids; each once."""
    wanted, found = sorted(set(names)), dict[str, dict[str, Any]]()
    for path in sorted({path for group in groups for _, path in group[0].tables(steps.DOCUMENTS)}) if wanted else ():
        for row in matching(path, "id", wanted, ["id", "url", "source"]):
            found[row["id"]] = {key: row[key] for key in ("id", "url", "source")}
    return [found[name] for name in wanted if name in found]


def edit(config: dict[str, Any], listed: str, kind: str) -> dict[str, Any]:
    """The config edit that drops them: the filter `url` first, with one more list; where a variant sets these, there too."""
    made = sweep.variants(config)
    out = _edited(config, config, listed, kind)
    own = {
        name: _edited(overlay, config, listed, kind)
        for name, overlay in config["variants"].items()
        if made.get(name) != overlay
    }
    own = {name: each for name, each in own.items() if each}
    return {**out, **({"variants": own} if own else {})}


def _edited(given: dict[str, Any], main: dict[str, Any], listed: str, kind: str) -> dict[str, Any]:
    """The edit of what a config or an overlay itself sets."""
    out: dict[str, Any] = {}
    if "filters" in given and (given is main or "url" not in given["filters"]):
        out["filters"] = given["filters"] if "url" in given["filters"] else ["url", *given["filters"]]
    if has(given, f"url.score.{kind}"):
        out["url"] = {"score": {kind: [*given["url"]["score"][kind], listed]}}
    return out


def edited(config: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """The complete config with an edit; what `sweep` stands for is made again."""
    made = sweep.variants(config)
    own = {name: overlay for name, overlay in config["variants"].items() if made.get(name) != overlay}
    return configuration.validate(configuration.merged({**config, "variants": own}, changed))


def lacking(whole: dict[str, Any], listed: str, kind: str) -> list[str]:
    """The variants of an edited config that would not drop them."""
    every = {name: configuration.of_variant(whole, name) for name in ("main", *whole["variants"])}
    return [
        name
        for name, config in every.items()
        if "url" not in config["filters"] or listed not in config["url"]["score"][kind]
    ]


def again(results: Results, whole: dict[str, Any]) -> dict[str, list[str]]:
    """By variant the steps that would run with an edited config, in order; what variants share counts as the first one's."""
    old = results.project
    project = Project(whole, old.held if whole["variants"].keys() == old.variants.keys() - {"main"} else None)
    out = {}
    for name, config in project.variants.items():
        out[name] = [
            step
            for step in steps.used(config)
            for task in steps.ids(step, config)[:1]
            if project.folder(name, step, task).split("/")[1] == name
            and (
                name not in old.variants
                or not steps.is_used(step, old.variants[name])
                or task not in steps.ids(step, old.variants[name])
                or project.fingerprint(name, step, task) != old.fingerprint(name, step, task)
            )
        ]
    return {name: found for name, found in out.items() if found}


def corpora(results: Results, variant: str | None) -> tuple[list[list[Results]], list[str]]:
    """(the variants of each distinct corpus, those of which no document was read yet); variant: of that one alone."""
    found: dict[tuple[str, ...], list[Results]] = {}
    without = []
    for name in [variant] if variant else results.project.variants:
        try:
            one = results.of(name)
        except InputError:
            without.append(name)
            continue
        key = tuple(one.project.folder(name, step) for step in (steps.DOCUMENTS, "corpus.write", "tokenize.encode"))
        found.setdefault(key, []).append(one)
    return list(found.values()), without


def starts(results: Results, found: dict[str, dict[str, Any]], split: str = "") -> Iterator[Path]:
    """The manifests of what first holds the documents: of ingest.extract, and of what wrote them; with a split those of corpus.write."""
    for one in found.values():
        if split:
            if one.get("fate") == split:
                yield results.path("corpus.write", one["shard"])
            continue
        yield results.path(steps.DOCUMENTS, one["shard"])
        if step := one.get("written_by"):
            yield results.path(step)


def reached(made: Lineage, read: set[Path], heldout: set[Path], trained: set[Path]) -> dict[str, Any]:
    """What was made from documents, by lineage. read: where they are before the corpus; heldout, trained: the shards of the corpus with
    them on that side.
    """
    learnt = made.downstream(trained, lineage.enters_training)
    whole = learnt | made.downstream(heldout, lineage.enters_heldout) | made.downstream(read, lineage.enters_documents)
    models = [one for one in learnt if one.step in steps.MAKERS]
    exports = [one for one in learnt if one.step == EXPORT_STEP]
    lost = [one for one in made.unknown() - learnt if one.step in (*steps.MAKERS, EXPORT_STEP)]
    paths = {one.place for one in learnt}
    trainings = list(checkpoint_folders.announced(CHECKPOINTS))
    kept = {folder for folder, manifest, _ in trainings if manifest in paths}
    known = {one.place for one in made.made}
    unended = {folder for folder, _, _ in trainings} - {
        folder for folder, manifest, _ in trainings if manifest in known
    }
    return {
        "models": [one.name for one in lineage.ordered(models)],
        "exports": [str(one.manifest.parent / one.task) for one in lineage.ordered(exports)],
        "checkpoints": sorted(map(str, kept)),
        "set_aside": sorted(str(one.manifest.parent) for one in whole if one.aside),
        "results": dict(lineage.steps_of(whole)),
        "not_known": [*(str(one.manifest) for one in lineage.ordered(lost)), *sorted(map(str, unended))],
        "caches": sorted(
            str(path) for path in (*Path(FOLDER).parent.glob("*"), *RESULTS.glob(f"*/{NOW}")) if path.is_dir()
        ),
    }


def answer(
    results: Results, domains: list[str], urls: list[str], listed: Path | None, variant: str | None = None
) -> dict[str, Any]:
    """What `main` tells. listed: where the list is to lie. variant: the one that is looked at; none: all."""
    entries, kind = ([*domains], "domains") if domains else ([*urls], "folders")
    config = results.project.variants["main"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ("domains" if domains else "urls")).write_text(
            "".join(f"{one}\n" for one in entries), encoding="utf-8"
        )
        given = str(folder / "domains" if domains else folder)
        empty = configuration.validate({})["url"]["score"]
        lists = Lists({**empty, kind: [given]})
        documents: list[dict[str, Any]] = []
        by: dict[str, dict[str, Any]] = {}
        places: dict[str, set[Path]] = {split: set() for split in ("", "validation", "train")}
        groups, without = corpora(results, variant)
        copied, keepers = dict[str, str](), dict[str, str]()
        read: dict[str, dict[str, dict[str, Any]]] = {}  # what is on the lists, by the folder of the documents
        for group in groups:
            first, names = group[0], [one.variant for one in group]
            place = first.project.folder(first.variant, steps.DOCUMENTS)
            if place not in read:
                read[place] = touched(first, lists)
            found = {key: {**one, "variants": names} for key, one in read[place].items()}
            fates(first, found)
            skipping = steps.skipped_by("url.select", first.config)
            for one in found.values():
                one["stays"] = bool(one["curated"]) or one["source"] in skipping
            back, stay = copies(first, found)
            copied, keepers = copied | back, keepers | stay
            fate = Counter(one.get("fate", NOT_FOLLOWED) for one in found.values())
            tokens = sum(one.get("tokens", 0) for one in found.values() if one.get("fate") == "train")
            told = {"documents": len(found), "by_fate": dict(fate.most_common()), "training_tokens": tokens}
            by |= dict.fromkeys(names, told)
            documents += found.values()
            for split, paths in places.items():
                paths |= {*starts(first, found, split)}
        copies_of = [{**row, "duplicate_of": copied[row["id"]]} for row in addresses(groups, copied)]
        originals = [{**row, "duplicate": keepers[row["id"]]} for row in addresses(groups, keepers)]
        held = [one for one in documents if one.get("fate", NOT_FOLLOWED) in HELD]
        changes = any(not one["stays"] for one in held)
        whole = edited(config, edit(config, given, kind)) if changes else {}
        short = lacking(whole, given, kind) if changes else []
        runs = again(results, whole) if changes else {}
    return {
        "documents": documents,
        "by_variant": by,
        "not_read": without,
        "not_of_config": sorted(
            folder.name
            for folder in RESULTS.glob("*")
            if folder.is_dir() and folder.name not in results.project.variants
        ),
        **reached(Lineage(), *places.values()),
        "curated": len({one["id"] for one in documents if one["curated"]}),
        "stays": len({one["id"] for one in held if one["stays"]}),
        "copies": copies_of,
        "originals": originals,
        "list": entries,
        "edit": edit(config, str(listed or FILE), kind) if changes else {},
        "lacking": short,
        "runs_again": runs,
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The answer as text."""
    documents = found["documents"]
    for name in found["not_read"]:
        yield f"variant {name}: no document was read yet"
    for name in found["not_of_config"]:
        yield f"results/{name}: not looked at, since the config has no variant of that name (crawl2llm clean lists such folders)"
    if not documents:
        yield f"no document is from {', '.join(found['list'])}"
        return
    for names, told in _alike(found["by_variant"]):
        of = f" ({_few(names)})" if len(found["by_variant"]) > 1 else ""
        fate = ", ".join(f"{number:,} {name}" for name, number in told["by_fate"].items()) or "none"
        yield f"{quantity(told['documents'], 'document')}{of}: {fate}; {quantity(told['training_tokens'], 'token')} of the training text"
    for one in documents[:SHOWN]:
        yield f"  {one.get('fate', ''):12} {one.get('tokens', 0):>8,} tokens  {one['url'] or '(no address)'}"
    if len(documents) > SHOWN:
        yield f"  … {len(documents) - SHOWN:,} more: --json lists all"
    if written := [one for one in documents if "written_by" in one]:
        yield f"texts among them that a model wrote of such pages: {len(written):,}"
    yield from _reached(found)
    stay = (
        f"documents of a source whose documents the filter url keeps (curated, or with skip_filters): {found['stays']:,}; take them "
        "out of the source's files"
    )
    if found["originals"]:
        yield (
            f"documents of other addresses that these were dropped as duplicates of, and whose text stays: {len(found['originals']):,}. To "
            "leave them out, list them too:"
        )
        yield from _urls(found["originals"])
    if not found["edit"]:
        yield "nothing to do: " + (stay if found["stays"] else "none of them is in a training or validation text")
        return
    if found["stays"]:
        yield stay
    yield "the edit that leaves them out:"
    yield from (
        f"  {line}" for line in yaml.safe_dump(found["edit"], sort_keys=False, default_flow_style=None).splitlines()
    )
    if found["lacking"]:
        yield f"sweep sets the filters or lists of {_few(found['lacking'])}: add url and the list there too, by hand"
    yield f"with {', '.join(found['list'])} in the list (--write FILE writes it)"
    if copied := found["copies"]:
        yield (
            f"documents of other addresses that were dropped as duplicates of these: {len(copied):,}. With the edit one of each text may "
            "stand in their place. To leave them out, list them too:"
        )
        yield from _urls(copied)
    for names, again_steps in _alike(found["runs_again"]):
        yield f"what would run again{f' of {_few(names)}' if names != ['main'] else ''}: {', '.join(again_steps)}"


def _reached(found: dict[str, Any]) -> Iterator[str]:
    """What was made from the documents."""
    yield f"models that learnt from them: {', '.join(found['models']) or 'none'}"
    for key, words in REACHED.items():
        if found[key]:
            yield f"{words}: {', '.join(found[key][:SHOWN])}{f' and {len(found[key]) - SHOWN:,} more' if found[key][SHOWN:] else ''}"
    for variant, names in found["results"].items():
        yield f"results of {variant} that hold something of them or were made with them: {_steps(names)}"


def _urls(found: list[dict[str, Any]]) -> Iterator[str]:
    yield from (f"  {one['url'] or '(no address)'}" for one in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"  … {len(found) - SHOWN:,} more: --json lists all"


def _alike(by: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """(variants, what is told of each of them), in order."""
    told: list[Any] = []
    for one in by.values():
        if one not in told:
            told.append(one)
    for one in told:
        yield [name for name in by if by[name] == one], one


def _steps(names: list[str]) -> str:
    """`4 steps, corpus.split to report.render`."""
    return f"{quantity(len(names), 'step')}, {names[0]}" + (f" to {names[-1]}" if names[1:] else "")


def _few(names: list[str]) -> str:
    """`main, small and 7 more variants`."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more variants" if len(names) > 3 else "")


def bare(domains: list[str]) -> None:
    """InputError for a domain with a scheme or a path, which would stand for its whole host, and for a public suffix, which would not stand
    for the hosts below it.
    """
    public = PublicSuffixes()
    for one in domains:
        if any(mark in one for mark in "/?#"):
            raise InputError(
                f"--domain is {one!r}; it is a domain without scheme and path, such as {host(one) or 'example.org'}, and stands for "
                f"all its pages. For an address: --url {one}"
            )
        for name, pattern in listed_domains(one):
            if name in public and not pattern:
                raise InputError(
                    f"--domain is {one!r}, a public suffix, below which everybody has hosts. For all of them: --domain .{name}; "
                    f"for the host {name} alone: --url {name}"
                )


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described(
        "crawl2llm forget", __doc__, "--domain difflib.docs.demo.example --write takedown.txt"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--domain", nargs="+", default=[], help="domains: themselves and all hosts below them")
    what.add_argument("--url", nargs="+", default=[], help="addresses: a host and the beginning of a path")
    parser.add_argument("--write", type=Path, help="write the list there: a file of domains, or with --url a folder")
    options(parser, every=True)
    args = parser.parse_args(argv)
    bare(args.domain)
    listed = args.write
    with contextlib.ExitStack() as stack:
        target = listed.absolute() if listed else None
        results = opened_results(args, stack)
        found = answer(results, args.domain, args.url, listed, args.variant)
        if target:
            file = target if args.domain else target / "urls"
            write_atomically(file, "".join(f"{one}\n" for one in found["list"]))
    return command_line.show(args, found, lambda: lines(found))


if __name__ == "__main__":
    raise SystemExit(main())
