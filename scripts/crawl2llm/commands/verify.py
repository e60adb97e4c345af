"""Compare every file of the results with its manifest: sizes, or checksums with --deep.

Names what is missing or damaged, and what makes it again. Exit status: 0 where everything is as its manifest says, else 1.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain.command_line import described
from crawl2llm.chain.input_digests import Inputs
from crawl2llm.core.console import Progress, log, put, quantity, setup
from crawl2llm.core.manifest import Manifest, ManifestError

# The target comes first: --configfile takes all words after it.
AGAIN = "snakemake {} --profile profiles/local --configfile YOUR-RUNS-CONFIG.yaml"


@dataclass
class Found:
    """What was looked at: manifests, files and bytes; `faults` are sentences by the manifest that they concern."""

    manifests: int = 0
    files: int = 0
    bytes: int = 0
    faults: dict[Path, list[str]] = field(default_factory=dict)
    gone: Counter[Path] = field(default_factory=Counter)


def check(results: Path, deep: bool) -> Found:
    """Look at every manifest below `results` (results/<variant>/<stage>/<step>/…manifest.json) and at its files."""
    found, inputs = Found(), Inputs(results)
    paths = sorted(path for path in results.glob("*/*/*/*manifest.json"))
    progress = Progress(len(paths), "manifests")
    for path in paths:
        found.manifests += 1
        try:
            manifest = Manifest.parse(path)
        except ManifestError as error:
            found.faults[path] = [str(error)]
            continue
        faults = manifest.damage(deep)
        found.files += len(manifest.files)
        found.bytes += sum(facts["bytes"] for facts in manifest.files.values())
        for _, other, same in inputs.of(manifest):
            if same is None:
                found.gone[other] += not other.exists()
            elif not same:
                faults.append(f"{path} was made from another {other} than the one that is there")
        if faults:
            found.faults[path] = faults
        progress.add()
    return found


def lines(found: Found, deep: bool, directory: Path = Path()) -> Iterator[str]:
    """What was found, for a person. directory: the run's working directory."""

    def again(path: Path | str) -> str:
        where = "" if directory == Path() else f" --directory {directory}"
        return AGAIN.format(os.path.relpath(path, directory)) + where

    for path, faults in found.faults.items():
        yield from (f"damaged: {fault}" for fault in faults)
        yield f"  to make it again: rm {path} && {again(path)}"
    for path, number in sorted((path, n) for path, n in found.gone.items() if n):
        yield f"missing: {path}, which {quantity(number, 'result was', 'results were')} made from"
        yield f"  to make it again: {again(path)}"
    how = "checksums" if deep else "sizes; --deep compares checksums"
    whole = "all as their manifests say" if not found.faults and not found.gone.total() else "not whole, see above"
    if not found.manifests:
        whole = "nothing to compare"
    yield f"{quantity(found.manifests, 'manifest')}, {quantity(found.files, 'file')}, {found.bytes / 1e6:,.1f} MB ({how}): {whole}"


def main(argv: list[str] | None = None) -> int:
    parser = described("crawl2llm verify", __doc__, "--deep --results results")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with all variants' results")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    parser.add_argument("--deep", action="store_true", help="read every file and compare its checksum")
    args = parser.parse_args(argv)
    setup("verify")
    args.results = args.directory / args.results
    if not args.results.is_dir():
        put(f"error: --results {args.results}: no such folder; a run writes it, see README.md", file=sys.stderr)
        return 1
    found = check(args.results, args.deep)
    if not found.manifests:
        log.info("no manifest below %s", args.results)
    for line in lines(found, args.deep, args.directory):
        put(line)
    return int(bool(found.faults) or bool(found.gone.total()) or not found.manifests)


if __name__ == "__main__":
    raise SystemExit(main())
