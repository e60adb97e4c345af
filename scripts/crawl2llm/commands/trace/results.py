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
from crawl2llm.chain.command_line import Parser, add_configfile_option
from crawl2llm.chain.project import Project
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import open_parquet, parquet_file


class Results:
    """A variant's results, in the working directory of the run. configfiles: as Snakemake's; none: config.yaml there.

    Raises ConfigError for a config that is none, and InputError for a variant that it has not, or of which nothing is there.
    """

    def __init__(self, configfiles: Sequence[Path], variant: str = "main") -> None:
        files = list(configfiles) or [Path("config.yaml")]
        config = configuration.validate(yaml_errors.read_layered(files), ", ".join(map(str, files)))
        self.project = Project(config)
        self._open_variant(variant)

    def of_variant(self, variant: str) -> Results:
        """The results of another variant of the same config. Raises InputError as above."""
        results = copy.copy(self)
        results._open_variant(variant)
        return results

    def _open_variant(self, variant: str) -> None:
        if variant not in self.project.variants:
            raise InputError(f"--variant is {variant!r}; the config has {', '.join(self.project.variants)}")
        self.variant, self.config = variant, self.project.variants[variant]
        self.shards = steps.shards(self.config)
        if not self.manifest_path(DOCUMENTS, self.shards[0]).exists():
            raise InputError(
                f"{self.manifest_path(DOCUMENTS, self.shards[0])} is not there: no document was read yet. Run the workflow, or name "
                "its folder with --directory and its config with --configfile"
            )

    def manifest_path(self, step: str, task: str = "") -> Path:
        """The manifest of a task."""
        return Path(self.project.manifest_path(self.variant, step, task))

    def read_manifest(self, step: str, task: str = "") -> Manifest | None:
        """The manifest of a task; None if the run has no such step, or it has not ended."""
        path = self.manifest_path(step, task)
        return Manifest.read(path) if steps.is_used(step, self.config) and path.exists() else None

    def shard_tables(self, step: str, suffix: str = "") -> Iterator[tuple[str, Path]]:
        """(shard, table) of a step over the shards that are there; suffix: `.dropped` of `00000.dropped.parquet`."""
        for shard in self.shards:
            if table_path := self.shard_table(step, shard):
                yield shard, table_path.with_name(f"{shard}{suffix}.parquet") if suffix else table_path

    def shard_table(self, step: str, shard: str) -> Path | None:
        """The table of one shard; None if it is not there."""
        path = self.manifest_path(step, shard if steps.STEPS[step].per == "shard" else "")
        return parquet_file(path, shard) if steps.is_used(step, self.config) and path.exists() else None

    def training_table(self, shard: str) -> Path:
        """The table of a shard's training documents, there or not."""
        return self.manifest_path("corpus.write", shard).parent / "train" / f"{shard}.parquet"

    def stale_lines(self, until: str = "") -> list[str]:
        """The steps whose results are there and not of today's config and code, in order. until: the last one that is looked at."""
        lines: list[str] = []
        for step in steps.used_steps(self.config):
            task = steps.result_ids(step, self.config)[:1]
            path = self.manifest_path(step, task[0]) if task else Path("-")
            fingerprint = self.project.fingerprint(self.variant, step, task[0]) if task else ""
            if (
                path.exists()
                and (
                    why := self.project.why_stale(
                        self.variant, step, steps.result_ids_of_task(step, task[0], self.config)
                    )
                )
                and fingerprint
            ):
                lines.append(f"{step}: {why}")
            if step == until:
                break
        return lines


def add_options(parser: Parser, all_variants: bool = False) -> None:
    """Add --configfile, --directory, --variant and --json. all_variants: without --variant the answer is of all variants, else of main."""
    add_configfile_option(parser, "the run's config (config.yaml of its folder)")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    parser.add_argument(
        "--variant",
        default=None if all_variants else "main",
        help=f"a variant of the config ({'all' if all_variants else 'main'})",
    )
    parser.add_argument("--json", action="store_true", help="the whole answer as JSON")


def open_results(args: argparse.Namespace, stack: contextlib.ExitStack) -> Results:
    """The results that the options of `add_options` name; the working directory is theirs until the stack ends."""
    files = [Path(name).absolute() for name in args.configfile]
    if not args.directory.is_dir():
        raise InputError(f"--directory is {args.directory}, which is not a folder")
    stack.enter_context(contextlib.chdir(args.directory))
    return Results(files, args.variant or "main")


def matching_rows(path: Path, column: str, values: Sequence[str], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table whose column is one of the values, with `row`, their place: of other row groups that column alone is read."""
    value_set = pa.array(values, pa.string())
    with open_parquet(path) as file:
        first = 0
        for number in range(file.num_row_groups):
            cells = file.read_row_group(number, columns=[column])[column]
            places = pc.indices_nonzero(pc.is_in(cells, value_set=value_set)).to_pylist()
            if places:
                group = file.read_row_group(
                    number, columns=[name for name in columns if name in file.schema_arrow.names]
                )
                for place, row in zip(places, group.take(places).to_pylist(), strict=True):
                    yield {**row, "row": first + place}
            first += len(cells)


def row_of_document(path: Path | None, name: str, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
    """The row of a document, by its id; None if the table or the row is not there."""
    if path is None:
        return None
    with open_parquet(path) as file:
        names = list(columns or file.schema_arrow.names)
    return next(matching_rows(path, "id", [name], names), None)
