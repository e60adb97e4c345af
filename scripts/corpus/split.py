"""Choose the validation documents: by origin, so that no book and no host is in training and in validation.

Writes `<shard>.parquet`: `id, split` (`train` or `validation`) of every document that all filters kept. How origins are
chosen: scripts/formats/origins.py. A corpus without a document ends here, with the stage that dropped the last ones and its reasons.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from scripts.formats import filtered
from scripts.formats.documents import Writer, add_counts, data, shard_of, survivors
from scripts.formats.origins import COLUMNS, Split
from scripts.workflow import cli
from scripts.workflow.console import Progress, log
from scripts.workflow.manifest import Manifest
from scripts.workflow.steps import stage_of

SPLITS = ("train", "validation")
CHOSEN = pa.schema([("id", pa.string()), ("split", pa.string())])
REASONS = 12  # named in a message; the rest is counted together


def listed(counts: dict[str, int]) -> str:
    """Counts as words, the largest first: `fr 80, en 76, 3 others 5`."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{name} {number:,}" for name, number in order[:REASONS] if number]
    rest = sum(number for _, number in order[REASONS:])
    return ", ".join(words) + (f", {len(order) - REASONS} others {rest:,}" if rest else "")


def empty(documents: list[Path], verdicts: list[Path]) -> str:
    """Why the corpus has no document: the step that dropped the last ones, its reasons and the settings that decide them.

    documents: manifests of ingest.extract. verdicts: those of the steps that judged, in their order; of some one for each shard.
    """
    total: dict[str, Any] = {"in": 0, "kept": 0, "dropped": {}}
    for path in documents:
        add_counts(total, Manifest.read(path).counts)
    if not total["kept"]:
        why = listed(total["dropped"])
        return f"the corpus is empty: of {total['in']:,} records ingest.extract kept 0" + (f": {why}" if why else "")
    for paths in filtered.by_step(verdicts):
        made, counts = [Manifest.read(path) for path in paths], dict[str, Any]()
        for manifest in made:
            add_counts(counts, manifest.counts)
        if counts["kept"]:
            continue
        said = f"the corpus is empty: of {counts['in']:,} documents {made[0].step} kept 0"
        if made[0].step == "language.select":
            languages, wanted = Counter[str](), made[0].summary["wanted"]
            for manifest in made:
                languages.update(manifest.summary["languages"])
            return (
                f"{said}: {listed(languages)}; language.select.languages is {wanted['languages']}, "
                f"language.select.threshold is {wanted['threshold']}"
            )
        return f"{said}: {listed(counts['dropped'])}"
    return "the corpus is empty"


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judging = filtered.by_step(args.verdicts)
    names = [shard_of(path) for path in args.documents]
    last = [data(filtered.of_shard(judging[-1], shard), shard) for shard in names]
    shards = list(zip(map(data, args.documents), last, names, strict=True))
    split = Split(settings["validation_fraction"], settings["seed"], settings["split_by"])
    progress = Progress(2 * len(shards), "shards")
    for documents, verdicts, _ in shards:
        for row in survivors(documents, verdicts, COLUMNS):
            split.add(row)
        progress.add()
    if not split.documents:
        raise cli.InputError(empty(args.documents, args.verdicts))
    split.decide()
    files = []
    for documents, verdicts, shard in shards:
        files.append(args.manifest.with_name(f"{shard}.parquet"))
        with Writer(files[-1], CHOSEN) as writer:
            for row in survivors(documents, verdicts, COLUMNS):
                writer.add({"id": row["id"], "split": SPLITS[split.holds(row)]})
        progress.add()
    manifest.counts = {"in": split.documents, "kept": split.documents, "dropped": {}}
    filters = [stage_of(Manifest.parse(paths[0]).step) for paths in judging[1:]]
    wanted = settings["validation_fraction"]
    manifest.summary = {**split.summary, "wanted": wanted, "notes": split.notes, "filters": filters}
    held = split.summary["heldout"]
    log.info("validation: %s documents, %.2f %%, by %s", f"{held['documents']:,}", 100 * held["fraction"], split.by)
    for note in split.notes:
        log.warning("%s", note)
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "corpus.split",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/*.manifest.json "
        "--verdicts results/main/ingest/check/manifest.json results/main/language/select/*.manifest.json "
        "--manifest /tmp/split/manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, nargs="+", help="manifests of ingest.extract")
    filtered.all_verdicts(parser)
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
