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
from crawl2llm.stages.report.render import Task, complete_config, figures_of, is_mapping, template_values
from crawl2llm.stages.report.state import State, read_state

# Facts of a training that is not finished, with their names in one line.
FACTS = {"Steps so far": "step", "Training loss, latest": "loss", "Last line written": "last line written"}


def missing_step_text(row: dict[str, Any], trainings: list[dict[str, Any]]) -> str:
    """How much of a missing step is there. trainings: those of the page, with their facts in `sofar` where they are not finished."""
    parts = [f"{row['found']:,} of {row['expected']:,} tasks are there"] if row["found"] else []
    for part in trainings:
        if part["sofar"] and part["model"].step == row["step"]:
            sofar = {name: value for name, value, _ in part["sofar"]}
            facts = [f"{short} {sofar[name]}" for name, short in FACTS.items() if name in sofar]
            parts.append(f"{part['model'].task} in training, or interrupted in it; {', '.join(facts)}".lstrip())
    if parts:
        return "; ".join(parts)
    if row["damaged"]:
        return "there, but damaged"
    return "begun, not finished" if row["log"] else "not there"


def state_for_page(state: State, results: Path, trainings: list[dict[str, Any]]) -> dict[str, Any]:
    """The state as the page and the terminal show it; paths are relative to the working directory of the run."""
    base = results.absolute().parent.parent

    def short_path(path: Path) -> str:
        path = path.absolute()
        return str(path.relative_to(base) if path.is_relative_to(base) else path)

    missing = [
        {**row, "words": missing_step_text(row, trainings), "log": row["log"] and short_path(row["log"])}
        for row in state.missing
    ]
    damaged = [
        (short_path(path), problem.removeprefix(f"{path}: ").removeprefix(f"{path} "))
        for path, problem in sorted((state.run.damaged or {}).items())
    ]
    of_another_time = {"other": state.other, "outdated": state.outdated}
    return {"complete": state.is_complete, "missing": missing, "damaged": damaged, **of_another_time}


def write_report(results: Path, configfiles: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """Write the page, funnel.json and counts.json beside it; returns the lines of the terminal's summary.

    Raises InputError if there is nothing to show, and ConfigError for a config that the schema refuses.
    """
    variant = results.absolute().name
    whole, config = complete_config(configfiles, "main"), complete_config(configfiles, variant)
    section = (config or configuration.validate({}))["report"]["render"]
    settings = Task(**section, models=model_registry.model_rows(config) if config else None)
    state = read_state(results.absolute(), config, whole)
    if not state.run.manifests and not state.run.damaged:
        raise command_line.InputError(f"{results}: no step has finished there, so there is nothing to show")
    page_context = template_values(state.run, out, settings, config, "")
    drawn = figures_of(state.run, page_context, config)
    page_context["state"] = state_for_page(
        state, results, page_context["trainings"]
    )  # last: what is damaged is found by reading
    page_context["counts"] |= {key: page_context["state"][key] for key in ("missing", "damaged", "other", "outdated")}
    funnel.write_json(out.with_name("funnel.json"), page_context["funnel"])
    funnel.write_json(out.with_name("counts.json"), page_context["counts"])
    write_atomically(out, page.render(page_context, drawn))
    return summary.summary_lines(page_context["counts"], page_context["total"]["seconds"], out)


def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser("crawl2llm report", __doc__, "--results results/main --configfile mine.yaml")
    parser.add_argument(
        "--results", type=Path, nargs="+", default=[Path("results/main")], help="results of a variant (results/main)"
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    command_line.add_configfile_option(
        parser, "the run's config: with it, what is missing and what is of other settings is known exactly"
    )
    args = parser.parse_args(argv)
    status = 0
    configfiles = [
        configfile if is_mapping(configfile) else str(Path(configfile).absolute()) for configfile in args.configfile
    ]
    for results in args.results:
        results = results if args.directory == Path() else (args.directory / results).absolute()
        try:
            if not results.is_dir():
                raise command_line.InputError(
                    f"--results {results} is not a folder; give that of a variant, such as results/main"
                )
            with contextlib.chdir(args.directory):  # paths in the config are relative to it
                lines = write_report(results, configfiles, results / "report" / "now" / "report.html")
        except (command_line.InputError, errors.ConfigError, ManifestError, OSError) as error:
            status = command_line.print_error(str(error))
        else:
            summary.print_lines(lines)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
