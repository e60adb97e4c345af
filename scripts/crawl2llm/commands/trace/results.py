"""The results of a run's variant as the trace reads them: manifests by step, single rows of tables, without running anything."""

from __future__ import annotations

import argparse
import contextlib
import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain import config as configuration
from crawl2llm.chain import steps, yaml_errors
from crawl2llm.chain.command_line import Parser, configfile_option
from crawl2llm.chain.project import Project
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import data, opened


class Results:
    """A variant's results, in the working directory of the run. configfiles: as Snakemake's; none: config.yaml there.

    Raises ConfigError for a config that is none, and InputError for a variant that it has not, or of which nothing is there.
    """

    def __init__(self, configfiles: Sequence[Path], variant: str = "main") -> None:
        given = list(configfiles) or [Path("config.yaml")]
        whole = configuration.validate(yaml_errors.laid(given), ", ".join(map(str, given)))
        self.project = Project(whole)
        self._open(variant)

    def of(self, variant: str) -> Results:
        """The results of another variant of the same config. Raises InputError as above."""
        found = copy.copy(self)
        found._open(variant)
        return found

    def _open(self, variant: str) -> None:
        if variant not in self.project.variants:
            raise InputError(f"--variant is {variant!r}; the config has {', '.join(self.project.variants)}")
        self.variant, self.config = variant, self.project.variants[variant]
        self.shards = steps.shards(self.config)
        if not self.path(steps.DOCUMENTS, self.shards[0]).exists():
            raise InputError(
                f"{self.path(steps.DOCUMENTS, self.shards[0])} is not there: no document was read yet. Run the workflow, or name its "
                "folder with --directory and its config with --configfile"
            )

    def path(self, step: str, task: str = "") -> Path:
        """The manifest of a task."""
        return Path(self.project.manifest(self.variant, step, task))

    def made(self, step: str, task: str = "") -> Manifest | None:
        """The manifest of a task; None where the run has no such step, or it has not ended."""
        path = self.path(step, task)
        return Manifest.read(path) if steps.is_used(step, self.config) and path.exists() else None

    def tables(self, step: str, suffix: str = "") -> Iterator[tuple[str, Path]]:
        """(shard, table) of a step over the shards that are there; suffix: `.dropped` of `00000.dropped.parquet`."""
        for shard in self.shards:
            if found := self.table(step, shard):
                yield shard, found.with_name(f"{shard}{suffix}.parquet") if suffix else found

    def table(self, step: str, shard: str) -> Path | None:
        """The table of one shard; None where it is not there."""
        path = self.path(step, shard if steps.STEPS[step].per == "shard" else "")
        return data(path, shard) if steps.is_used(step, self.config) and path.exists() else None

    def train(self, shard: str) -> Path:
        """The table of a shard's training documents, there or not."""
        return self.path("corpus.write", shard).parent / "train" / f"{shard}.parquet"

    def stale(self, until: str = "") -> list[str]:
        """The steps whose results are there and not of today's config and code, in order. until: the last one that is looked at."""
        found: list[str] = []
        for step in steps.used(self.config):
            task = steps.ids(step, self.config)[:1]
            path = self.path(step, task[0]) if task else Path("-")
            wanted = self.project.fingerprint(self.variant, step, task[0]) if task else ""
            if (
                path.exists()
                and (why := self.project.stale(self.variant, step, steps.owned(step, task[0], self.config)))
                and wanted
            ):
                found.append(f"{step}: {why}")
            if step == until:
                break
        return found


def options(parser: Parser, every: bool = False) -> None:
    """Add --configfile, --directory, --variant and --json. every: without --variant the answer is of all variants, else of main."""
    configfile_option(parser, "the run's config (config.yaml of its folder)")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    parser.add_argument(
        "--variant", default=None if every else "main", help=f"a variant of the config ({'all' if every else 'main'})"
    )
    parser.add_argument("--json", action="store_true", help="the whole answer as JSON")


def opened_results(args: argparse.Namespace, stack: contextlib.ExitStack) -> Results:
    """The results that `options` name; the working directory is theirs until the stack ends."""
    files = [Path(name).absolute() for name in args.configfile]
    if not args.directory.is_dir():
        raise InputError(f"--directory is {args.directory}, which is no folder")
    stack.enter_context(contextlib.chdir(args.directory))
    return Results(files, args.variant or "main")


def matching(path: Path, column: str, values: Sequence[str], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table whose column is one of the values, with `row`, their place: of other row groups that column alone is read."""
    wanted = pa.array(values, pa.string())
    with opened(path) as file:
        first = 0
        for number in range(file.num_row_groups):
            found = file.read_row_group(number, columns=[column])[column]
            places = pc.indices_nonzero(pc.is_in(found, value_set=wanted)).to_pylist()
            if places:
                some = file.read_row_group(
                    number, columns=[name for name in columns if name in file.schema_arrow.names]
                )
                for place, row in zip(places, some.take(places).to_pylist(), strict=True):
                    yield {**row, "row": first + place}
            first += len(found)


def one(path: Path | None, name: str, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
    """The row of a document, by its id; None where the table or the row is not there."""
    if path is None:
        return None
    with opened(path) as file:
        names = list(columns or file.schema_arrow.names)
    return next(matching(path, "id", [name], names), None)
