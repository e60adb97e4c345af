"""Render the report of what is there so far: after the data stages alone, while training runs, or after a failure.

Writes a page of its own, results/<variant>/report/now/report.html, and prints the main numbers with what is missing or
damaged. It runs no step, needs no complete run and no lock, so it may be called while the workflow runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line, model_registry
from crawl2llm.chain import config as configuration
from crawl2llm.core import errors
from crawl2llm.core.manifest import ManifestError, write_atomically
from crawl2llm.stages.report import funnel, page, summary
from crawl2llm.stages.report.render import complete, context, figures_of, is_mapping
from crawl2llm.stages.report.state import State, look

# Facts of a training that is not finished, with their names in one line.
FACTS = {"Steps so far": "step", "Training loss, latest": "loss", "Last line written": "last line written"}


def words(row: dict[str, Any], trainings: list[dict[str, Any]]) -> str:
    """How much of a missing step is there. trainings: those of the page, with their facts in `sofar` where they are not finished."""
    said = [f"{row['found']:,} of {row['expected']:,} tasks are there"] if row["found"] else []
    for part in trainings:
        if part["sofar"] and part["model"].step == row["step"]:
            sofar = {name: value for name, value, _ in part["sofar"]}
            known = [f"{short} {sofar[name]}" for name, short in FACTS.items() if name in sofar]
            said.append(f"{part['model'].task} in training, or interrupted in it; {', '.join(known)}".lstrip())
    if said:
        return "; ".join(said)
    if row["damaged"]:
        return "there, but damaged"
    return "begun, not finished" if row["log"] else "not there"


def shown_state(state: State, results: Path, trainings: list[dict[str, Any]]) -> dict[str, Any]:
    """The state as the page and the terminal show it; paths are relative to the working directory of the run."""
    base = results.absolute().parent.parent

    def short(path: Path) -> str:
        path = path.absolute()
        return str(path.relative_to(base) if path.is_relative_to(base) else path)

    missing = [
        {**row, "words": words(row, trainings), "log": row["log"] and short(row["log"])} for row in state.missing
    ]
    damaged = [
        (short(path), problem.removeprefix(f"{path}: ").removeprefix(f"{path} "))
        for path, problem in sorted((state.run.damaged or {}).items())
    ]
    of_another_time = {"other": state.other, "outdated": state.outdated}
    return {"complete": state.complete, "missing": missing, "damaged": damaged, **of_another_time}


def render(results: Path, configfiles: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """Write the page, funnel.json and counts.json beside it; returns the lines of the terminal's summary.

    Raises InputError where there is nothing to show, and ConfigError for a config that the schema refuses.
    """
    variant = results.absolute().name
    whole, config = complete(configfiles, "main"), complete(configfiles, variant)
    settings = (config or configuration.validate({}))["report"]["render"]
    if config:  # else the models are those that left a result
        settings = {**settings, "models": model_registry.listed(config)}
    state = look(results.absolute(), config, whole)
    if not state.run.manifests and not state.run.damaged:
        raise command_line.InputError(f"{results}: no step has finished there, so there is nothing to show")
    shown = context(state.run, out, settings, config, "")
    drawn = figures_of(state.run, shown, config)
    shown["state"] = shown_state(state, results, shown["trainings"])  # last: what is damaged is found by reading
    shown["counts"] |= {key: shown["state"][key] for key in ("missing", "damaged", "other", "outdated")}
    funnel.write(out.with_name("funnel.json"), shown["funnel"])
    funnel.write(out.with_name("counts.json"), shown["counts"])
    write_atomically(out, page.render(shown, drawn))
    return summary.lines(shown["counts"], shown["total"]["seconds"], out)


def main(argv: list[str] | None = None) -> int:
    parser = command_line.described("crawl2llm report", __doc__, "--results results/main --configfile mine.yaml")
    parser.add_argument(
        "--results", type=Path, nargs="+", default=[Path("results/main")], help="results of a variant (results/main)"
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    command_line.configfile_option(
        parser, "the run's config: with it, what is missing and what is of other settings is known exactly"
    )
    args = parser.parse_args(argv)
    status = 0
    configfiles = [given if is_mapping(given) else str(Path(given).absolute()) for given in args.configfile]
    for results in args.results:
        results = results if args.directory == Path() else (args.directory / results).absolute()
        try:
            if not results.is_dir():
                raise command_line.InputError(
                    f"--results {results} is no folder; give that of a variant, such as results/main"
                )
            with contextlib.chdir(args.directory):  # paths in the config are relative to it
                lines = render(results, configfiles, results / "report" / "now" / "report.html")
        except (command_line.InputError, errors.ConfigError, ManifestError, OSError) as error:
            status = command_line.fail(str(error))
        else:
            summary.show(lines)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
