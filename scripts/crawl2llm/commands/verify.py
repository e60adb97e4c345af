"""Compare every file of the results with its manifest: sizes, or checksums with --deep.

Names what is missing or damaged, and what makes it again. Exit status: 0 if everything is as its manifest says, else 1.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain.command_line import command_parser
from crawl2llm.chain.input_digests import Inputs
from crawl2llm.core.console import Progress, format_quantity, log, print_line, set_up_logging
from crawl2llm.core.manifest import Manifest, ManifestError

# The target comes first: --configfile takes all words after it.
AGAIN = "snakemake {} --profile profiles/local --configfile YOUR-RUNS-CONFIG.yaml"


@dataclass
class Findings:
    """What was looked at: manifests, files and bytes; `faults` are sentences by the manifest that they concern."""

    manifests: int = 0
    files: int = 0
    bytes: int = 0
    faults: dict[Path, list[str]] = field(default_factory=dict)
    missing_inputs: Counter[Path] = field(default_factory=Counter)


def find_problems(results: Path, deep: bool) -> Findings:
    """Look at every manifest below `results` (results/<variant>/<stage>/<step>/…manifest.json) and at its files."""
    findings, inputs = Findings(), Inputs(results)
    paths = sorted(path for path in results.glob("*/*/*/*manifest.json"))
    progress = Progress(len(paths), "manifests")
    for path in paths:
        findings.manifests += 1
        try:
            manifest = Manifest.read_unchecked(path)
        except ManifestError as error:
            findings.faults[path] = [str(error)]
            continue
        faults = manifest.file_problems(deep)
        findings.files += len(manifest.files)
        findings.bytes += sum(facts["bytes"] for facts in manifest.files.values())
        for _, input_path, same in inputs.inputs_of(manifest):
            if same is None:
                findings.missing_inputs[input_path] += not input_path.exists()
            elif not same:
                faults.append(f"{path} was made from another {input_path} than the one that is there")
        if faults:
            findings.faults[path] = faults
        progress.add()
    return findings


def finding_lines(findings: Findings, deep: bool, directory: Path = Path()) -> Iterator[str]:
    """What was found, for a person. directory: the run's working directory."""

    def rerun_command(path: Path | str) -> str:
        where = "" if directory == Path() else f" --directory {directory}"
        return AGAIN.format(os.path.relpath(path, directory)) + where

    for path, faults in findings.faults.items():
        yield from (f"damaged: {fault}" for fault in faults)
        yield f"  to make it again: rm {path} && {rerun_command(path)}"
    for path, number in sorted((path, n) for path, n in findings.missing_inputs.items() if n):
        yield f"missing: {path}, which {format_quantity(number, 'result was', 'results were')} made from"
        yield f"  to make it again: {rerun_command(path)}"
    how = "checksums" if deep else "sizes; --deep compares checksums"
    is_whole = not findings.faults and not findings.missing_inputs.total()
    whole = "all as their manifests say" if is_whole else "not whole, see above"
    if not findings.manifests:
        whole = "nothing to compare"
    manifests, files = format_quantity(findings.manifests, "manifest"), format_quantity(findings.files, "file")
    yield f"{manifests}, {files}, {findings.bytes / 1e6:,.1f} MB ({how}): {whole}"


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm verify", __doc__, "--deep --results results")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with all variants' results")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    parser.add_argument("--deep", action="store_true", help="read every file and compare its checksum")
    args = parser.parse_args(argv)
    set_up_logging("verify")
    args.results = args.directory / args.results
    if not args.results.is_dir():
        print_line(f"error: --results {args.results}: no such folder; a run writes it, see README.md", file=sys.stderr)
        return 1
    findings = find_problems(args.results, args.deep)
    if not findings.manifests:
        log.info("no manifest below %s", args.results)
    for line in finding_lines(findings, args.deep, args.directory):
        print_line(line)
    return int(bool(findings.faults) or bool(findings.missing_inputs.total()) or not findings.manifests)


if __name__ == "__main__":
    raise SystemExit(main())
