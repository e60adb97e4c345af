"""The difference of two runs, on this machine or another, today's or an older one: settings, code, input, versions, counts and measures.

A and B are folders of results, such as results/main, or records that `crawl2llm record` wrote. Settings are those that the results were
made with. Only what differs is told; --json has all of it. With --page instead of A and B: the page over all variants of a run (of
--configfile), as far as they are there, beside or after the run, finished or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import BASE
from crawl2llm.chain.steps import NUMBERED, STEPS
from crawl2llm.commands.compare.collect import load_record, run_record
from crawl2llm.commands.compare.same_questions import incomparable_measures
from crawl2llm.core.console import format_quantity, print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import pretty_json, write_atomically
from crawl2llm.core.nested_dicts import flatten
from crawl2llm.core.phrases import and_more

Row = dict[str, Any]
# Of the summaries, what a text tells: the last part of a key.
SHOWN_MEASURES = (
    "bits_per_byte",
    "loss",
    "validation_loss",
    "accuracy",
    "tokens",
    "documents",
    "bytes_per_token",
    "roc_auc",
    "heldout_loss_after",
)
SUMMED_KEYS = ("documents", "tokens", "bytes")  # of the summaries of a step by shard, what adds up
MOST_LINES = 40
MOST_STEPS = 3  # steps that do not go together with the others
VALUE_WIDTH = 60  # characters of a value
PAGE = Path("results/main/report/now/compare.html")


def differing_values(in_a: Row, in_b: Row) -> dict[str, list[Any]]:
    """Key → [in A, in B] of the leaves that are not the same; None for one that is not there."""
    a, b = flatten(in_a), flatten(in_b)
    return {key: [a.get(key), b.get(key)] for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)}


def compare_records(record_a: Row, record_b: Row) -> Row:
    """What differs between two records, by kind."""
    a, b = record_a["steps"], record_b["steps"]
    both = [step for step in a if step in b]
    both_of = {step: {**a[step]["by"], **b[step]["by"]} for step in both}
    partial = [step for step in both if _is_partial(a, b, step)]
    whole = [step for step in both if step not in partial]
    return {
        "a": {key: record_a[key] for key in ("variant", "written", "crawl2llm")},
        "b": {key: record_b[key] for key in ("variant", "written", "crawl2llm")},
        "outdated": {name: of.get("outdated", {}) for name, of in (("a", record_a), ("b", record_b))},
        "other_settings": {name: of.get("other_settings", []) for name, of in (("a", record_a), ("b", record_b))},
        "steps": {"only_a": [step for step in a if step not in b], "only_b": [step for step in b if step not in a]},
        "settings": differing_values(
            *({step: _step_settings(of[step], both_of[step]) for step in both} for of in (a, b))
        ),
        "code": {step: names for step in both if (names := _changed_modules(a[step], b[step]))},
        "input": [step for step in both if _has_other_sources(a, b, step)],
        "versions": _merge_by_key(
            {
                step: differing_values(_single_values(a[step]["versions"]), _single_values(b[step]["versions"]))
                for step in both
            }
        ),
        "machine": _merge_by_key(
            {
                step: differing_values(_single_values(a[step]["machine"]), _single_values(b[step]["machine"]))
                for step in both
            }
        ),
        "partial": {
            step: {name: [of[step]["tasks"], of[step]["of"]] for name, of in (("a", a), ("b", b))} for step in partial
        },
        "counts": differing_values(
            {step: a[step]["counts"] for step in whole}, {step: b[step]["counts"] for step in whole}
        ),
        "sums": differing_values(
            *({step: summary_sums(of[step]["summary"]) for step in whole if _is_by_shard(step)} for of in (a, b))
        ),
        "measures": differing_values(*_both_summaries(a, b, whole, partial)),
        "incomparable": incomparable_measures(a, b),
        "seconds": {step: [a[step]["seconds"], b[step]["seconds"]] for step in both},
        "same_files": [step for step in both if a[step]["files"] == b[step]["files"]],
    }


def _is_partial(a: Row, b: Row, step: str) -> bool:
    """Whether A or B lacks tasks of a step."""
    return any(of[step]["tasks"] < of[step]["of"] for of in (a, b))


def _has_other_sources(a: Row, b: Row, step: str) -> bool:
    in_a, in_b = _shared_tasks(a, b, step, "sources")
    return json.dumps(in_a, sort_keys=True) != json.dumps(in_b, sort_keys=True)


def _is_by_shard(step: str) -> bool:
    return step in STEPS and STEPS[step].per == "shard"


def _has_numbered_tasks(step: str) -> bool:
    """Whether its tasks are pieces of one result: a text tells their sum."""
    return step in STEPS and STEPS[step].per in NUMBERED


def summary_sums(by_task: Row) -> Row:
    """What adds up of the summaries of a step's tasks, over all tasks, by dotted key."""
    out: Row = {}
    for summary in by_task.values():
        for key, value in flatten(summary).items():
            if key.rpartition(".")[2] in SUMMED_KEYS and isinstance(value, int):
                out[key] = out.get(key, 0) + value
    return out


def _shared_tasks(a: Row, b: Row, step: str, section: str) -> tuple[Row, Row]:
    """A part of a step's tasks in A and in B; of a step that is not complete, of the tasks that both have."""
    in_a, in_b = a[step][section], b[step][section]
    if not _is_partial(a, b, step):
        return in_a, in_b
    shared = [task for task in in_a if task in in_b]
    return {task: in_a[task] for task in shared}, {task: in_b[task] for task in shared}


def _both_summaries(a: Row, b: Row, whole: list[str], partial: list[str]) -> tuple[Row, Row]:
    """The summaries of A and of B by step and task; without a level for the tasks if there is one."""
    summaries = {step: _shared_tasks(a, b, step, "summary") for step in (*whole, *partial)}
    in_a, in_b = ({step: _without_task_level(both[side]) for step, both in summaries.items()} for side in (0, 1))
    return in_a, in_b


def _without_task_level(by_task: Row) -> Row:
    """Without the level of the tasks if there is no more than one."""
    return dict(by_task[""]) if list(by_task) == [""] else by_task


def _single_values(values: dict[str, list[Any]]) -> Row:
    """The only value of each key; where tasks had several, all."""
    return {key: task_values[0] if len(task_values) == 1 else task_values for key, task_values in values.items()}


def _step_settings(step: Row, tasks: Row) -> Row:
    """The settings of a step's tasks. tasks: those of A or B by name, so that settings told once are told by task where the other's are."""
    settings_by_task = {task: of["config"] for task, of in step["by"].items()}
    return _without_task_level(
        dict.fromkeys([task for task in tasks if task] or [""], settings_by_task[""])
        if list(settings_by_task) == [""]
        else settings_by_task
    )


def _changed_modules(in_a: Row, in_b: Row) -> list[str]:
    """The modules that differ."""
    sides = []
    for step in (in_a, in_b):
        first: Row = next(iter(step["by"].values()), {})
        sides.append(first.get("code", {}))
    a, b = sides
    return sorted(key for key in {*a, *b} if a.get(key) != b.get(key))


def _merge_by_key(by_step: dict[str, dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The same difference of many steps once, by the last part of its key."""
    out: dict[str, list[Any]] = {}
    for differences in by_step.values():
        out |= {key.rpartition(".")[2]: values for key, values in differences.items()}
    return out


def format_value(value: Any) -> str:
    """A value in a line."""
    text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def section_lines(title: str, rows: dict[str, list[Any]]) -> Iterator[str]:
    """A title and a line for each difference; nothing if there is none."""
    if rows:
        yield f"{title}:"
        yield from (
            f"  {key}: {format_value(a)} → {format_value(b)}" for key, (a, b) in list(rows.items())[:MOST_LINES]
        )
        if len(rows) > MOST_LINES:
            yield f"  … {len(rows) - MOST_LINES:,} more: --json lists all"


def inconsistency_lines(comparison: Row) -> Iterator[str]:
    """What of A or B does not go together with the rest of it, as text."""
    for name in ("a", "b"):
        late = list(comparison["outdated"][name].items())
        for step, why in late[:MOST_STEPS]:
            yield f"{name.upper()} is not of one run: {step}: {why}"
        if len(late) > MOST_STEPS:
            yield f"  and {len(late) - MOST_STEPS:,} more steps of {name.upper()}"
        if steps := comparison["other_settings"][name]:
            yield f"{name.upper()} has results of other settings or code than its config has now: {and_more(steps, MOST_STEPS)}"


def comparison_lines(comparison: Row) -> Iterator[str]:
    """The difference as text."""
    for name in ("a", "b"):
        of = comparison[name]
        yield f"{name.upper()}: {of['variant']}, crawl2llm {of['crawl2llm']}, {of['written']}"
    yield from inconsistency_lines(comparison)
    for key, name in (("only_a", "A"), ("only_b", "B")):
        if comparison["steps"][key]:
            yield f"steps of {name} alone: {', '.join(comparison['steps'][key])}"
    yield from section_lines("settings", comparison["settings"])
    if comparison["code"]:
        yield f"other code: {', '.join(comparison['code'])}"
    if comparison["input"]:
        yield f"other source files: {', '.join(comparison['input'])}"
    yield from section_lines("versions", comparison["versions"])
    yield from section_lines("machine", comparison["machine"])
    for step, of in comparison["partial"].items():
        (a, of_a), (b, of_b) = of["a"], of["b"]
        yield f"A has {a} of {of_a} tasks of {step}, B {b} of {of_b}: counts of that step are not compared"
    yield from section_lines(
        "documents", {key: value for key, value in comparison["counts"].items() if not key.endswith(".in")}
    )
    measures = {
        key: value
        for key, value in comparison["measures"].items()
        if key.rpartition(".")[2] in SHOWN_MEASURES
        and not _has_numbered_tasks(".".join(key.split(".")[:2]))
        and not any(f"{key}.".startswith(f"{beginning}.") for beginning in comparison["incomparable"])
    }
    yield from section_lines("measures", comparison["sums"] | measures)
    if comparison["incomparable"]:
        yield "not compared:"
        yield from (f"  {beginning}: {why}" for beginning, why in comparison["incomparable"].items())
    seconds = [sum(values[side] or 0 for values in comparison["seconds"].values()) for side in (0, 1)]
    yield f"seconds of all tasks: {seconds[0]:,.0f} → {seconds[1]:,.0f}"
    yield f"{len(comparison['same_files'])} of {len(comparison['seconds'])} steps have the same files, byte by byte"


def noise_lines(model: Row | None) -> Iterator[str]:
    """How far seeds of one setting are apart, by measure; nothing of settings with one seed each."""
    from crawl2llm.stages.report.sweeps.tables import measure_name

    rows = [(measure, measure["noise"]) for measure in (model["measures"] if model else ())]
    spreads = [(measure, noise) for measure, noise in rows if noise["deviation"] is not None]
    if spreads:
        yield f"standard deviation between seeds ({spreads[0][1]['freedom']} degrees of freedom) beside the largest difference to main:"
    for measure, noise in spreads:
        largest = max((row["difference"] for row in measure["to_main"]), key=abs, default=0.0)
        yield f"  {measure_name(measure['name'])}: {noise['deviation']:.4f}, {largest:+.4f}"


def add_options(parser: command_line.Parser) -> None:
    command_line.add_configfile_option(
        parser, "the run's config: with it, results that variants share are found exactly"
    )


def write_page(configfiles: list[str]) -> int:
    """Write the page over all variants of what is there. Raises InputError if nothing is."""
    from crawl2llm.stages.report import variants
    from crawl2llm.stages.report.compare import read_project
    from crawl2llm.stages.report.settings import CompareSettings

    run = read_project(configfiles or ["config.yaml"])
    report, results_by_variant = variants.read_comparison(
        run, CompareSettings.model_validate(run.variants["main"]["report"]["compare"])
    )
    if not any(manifests for variant in results_by_variant.values() for manifests in variant.manifests.values()):
        raise InputError(f"no variant has any result in {Path('results').absolute()}: run it first")
    write_atomically(PAGE.with_name("compare.json"), pretty_json(report))
    write_atomically(PAGE, variants.render(run, report, results_by_variant, ""))
    for line in noise_lines(report["models"].get(BASE)):
        print_line(line)
    missing = [row["name"] for row in report["variants"] if row["missing"] or row["damaged"]]
    print_line(
        f"{format_quantity(len(report['variants']), 'variant')} in {format_quantity(len(report['settings']), 'setting')}: {PAGE}"
    )
    if missing:
        print_line(f"not complete: {', '.join(missing)}")
    return 0


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm compare",
        __doc__,
        "results/main results/other\n  crawl2llm compare old.json results/main --json\n  crawl2llm compare --page --configfile mine.yaml",
    )
    parser.add_argument("a", type=Path, nargs="?", metavar="A", help="results of a variant, or a record")
    parser.add_argument("b", type=Path, nargs="?", metavar="B", help="the same of another run")
    parser.add_argument(
        "--page",
        action="store_true",
        help=f"write {PAGE}, of the existing variants of --configfile (config.yaml)",
    )
    parser.add_argument("--json", action="store_true", help="the whole difference as JSON")
    add_options(parser)
    args = parser.parse_args(argv)
    configfiles = [str(Path(path).absolute()) for path in args.configfile]
    if args.page:
        return write_page(configfiles)
    if args.a is None or args.b is None:
        raise InputError("A and B: give two folders of results or records, or --page for all variants of a run")
    comparison = compare_records(load_record(args.a, configfiles), load_record(args.b, configfiles))
    return command_line.print_findings(args, comparison, lambda: comparison_lines(comparison))


@command_line.report_errors
def write_record(argv: list[str] | None = None) -> int:
    """`crawl2llm record`."""
    parser = command_line.command_parser(
        "crawl2llm record",
        "A run's record: one JSON with the settings, code, versions, machine, checksums and summaries of a variant's results.",
        "results/main --out run.json",
    )
    parser.add_argument(
        "results", type=Path, nargs="?", default=Path("results/main"), help="results of a variant (results/main)"
    )
    parser.add_argument("--out", type=Path, help="the file to write (else it is printed)")
    add_options(parser)
    args = parser.parse_args(argv)
    if not args.results.is_dir():
        raise InputError(f"{args.results} is not a folder; give that of a variant, such as results/main")
    text = pretty_json(run_record(args.results, [str(Path(path).absolute()) for path in args.configfile]))
    if args.out:
        write_atomically(args.out, text)
    else:
        print_line(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
