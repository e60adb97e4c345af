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
from crawl2llm.chain.steps import NUMBERED, STEPS
from crawl2llm.commands.compare.collect import load, record
from crawl2llm.core.console import put, quantity
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import pretty, write_atomically
from crawl2llm.core.nested_dicts import flat

Row = dict[str, Any]
# Of the summaries, what a text tells: the last part of a key.
TOLD = (
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
ADDED = ("documents", "tokens", "bytes")  # of the summaries of a step by shard, what adds up
SHOWN = 40
NAMED = 3  # steps that do not go together with the others
WIDTH = 60  # characters of a value
PAGE = Path("results/main/report/now/compare.html")


def differing(one: Row, other: Row) -> dict[str, list[Any]]:
    """Key → [in A, in B] of the leaves that are not the same; None for one that is not there."""
    a, b = flat(one), flat(other)
    return {key: [a.get(key), b.get(key)] for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)}


def difference(one: Row, other: Row) -> Row:
    """What differs between two records, by kind."""
    a, b = one["steps"], other["steps"]
    both = [step for step in a if step in b]
    both_of = {step: {**a[step]["by"], **b[step]["by"]} for step in both}
    partial = [step for step in both if _is_partial(a, b, step)]
    whole = [step for step in both if step not in partial]
    return {
        "a": {key: one[key] for key in ("variant", "written", "crawl2llm")},
        "b": {key: other[key] for key in ("variant", "written", "crawl2llm")},
        "outdated": {name: of.get("outdated", {}) for name, of in (("a", one), ("b", other))},
        "other_settings": {name: of.get("other_settings", []) for name, of in (("a", one), ("b", other))},
        "steps": {"only_a": [step for step in a if step not in b], "only_b": [step for step in b if step not in a]},
        "settings": differing(*({step: _settings(of[step], both_of[step]) for step in both} for of in (a, b))),
        "code": {step: found for step in both if (found := _code(a[step], b[step]))},
        "input": [
            step
            for step in both
            if len({json.dumps(one, sort_keys=True) for one in _shared(a, b, step, "sources")}) > 1
        ],
        "versions": _merged({step: differing(_one(a[step]["versions"]), _one(b[step]["versions"])) for step in both}),
        "machine": _merged({step: differing(_one(a[step]["machine"]), _one(b[step]["machine"])) for step in both}),
        "partial": {
            step: {name: [of[step]["tasks"], of[step]["of"]] for name, of in (("a", a), ("b", b))} for step in partial
        },
        "counts": differing({step: a[step]["counts"] for step in whole}, {step: b[step]["counts"] for step in whole}),
        "sums": differing(*({step: sums(of[step]["summary"]) for step in whole if _by_shard(step)} for of in (a, b))),
        "measures": differing(*_measures(a, b, whole, partial)),
        "seconds": {step: [a[step]["seconds"], b[step]["seconds"]] for step in both},
        "same_files": [step for step in both if a[step]["files"] == b[step]["files"]],
    }


def _is_partial(a: Row, b: Row, step: str) -> bool:
    """Whether A or B lacks tasks of a step."""
    return any(of[step]["tasks"] < of[step]["of"] for of in (a, b))


def _by_shard(step: str) -> bool:
    return step in STEPS and STEPS[step].per == "shard"


def _numbered(step: str) -> bool:
    """Whether its tasks are pieces of one result: a text tells their sum."""
    return step in STEPS and STEPS[step].per in NUMBERED


def sums(by_task: Row) -> Row:
    """What adds up of the summaries of a step's tasks, over all tasks, by dotted key."""
    out: Row = {}
    for summary in by_task.values():
        for key, value in flat(summary).items():
            if key.rpartition(".")[2] in ADDED and isinstance(value, int):
                out[key] = out.get(key, 0) + value
    return out


def _shared(a: Row, b: Row, step: str, what: str) -> tuple[Row, Row]:
    """A part of a step's tasks in A and in B; of a step that is not complete, of the tasks that both have."""
    one, other = a[step][what], b[step][what]
    if not _is_partial(a, b, step):
        return one, other
    shared = [task for task in one if task in other]
    return {task: one[task] for task in shared}, {task: other[task] for task in shared}


def _measures(a: Row, b: Row, whole: list[str], partial: list[str]) -> tuple[Row, Row]:
    """The summaries of A and of B by step and task; without a level for the tasks where there is one."""
    found = {step: _shared(a, b, step, "summary") for step in (*whole, *partial)}
    one, other = ({step: _level(both[side]) for step, both in found.items()} for side in (0, 1))
    return one, other


def _level(by_task: Row) -> Row:
    """Without the level of the tasks where there is no more than one."""
    return dict(by_task[""]) if list(by_task) == [""] else by_task


def _one(values: dict[str, list[Any]]) -> Row:
    """The only value of each key; where tasks had several, all."""
    return {key: found[0] if len(found) == 1 else found for key, found in values.items()}


def _settings(step: Row, tasks: Row) -> Row:
    """The settings of a step's tasks. tasks: those of A or B by name, so that settings told once are told by task where the other's are."""
    own = {task: of["config"] for task, of in step["by"].items()}
    return _level(dict.fromkeys([task for task in tasks if task] or [""], own[""]) if list(own) == [""] else own)


def _code(one: Row, other: Row) -> list[str]:
    """The modules that differ."""
    sides = []
    for step in (one, other):
        first: Row = next(iter(step["by"].values()), {})
        sides.append(first.get("code", {}))
    a, b = sides
    return sorted(key for key in {*a, *b} if a.get(key) != b.get(key))


def _merged(by_step: dict[str, dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The same difference of many steps once, by the last part of its key."""
    out: dict[str, list[Any]] = {}
    for found in by_step.values():
        out |= {key.rpartition(".")[2]: values for key, values in found.items()}
    return out


def short(value: Any) -> str:
    """A value in a line."""
    text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def part(title: str, rows: dict[str, list[Any]]) -> Iterator[str]:
    """A title and a line for each difference; nothing where there is none."""
    if rows:
        yield f"{title}:"
        yield from (f"  {key}: {short(a)} → {short(b)}" for key, (a, b) in list(rows.items())[:SHOWN])
        if len(rows) > SHOWN:
            yield f"  … {len(rows) - SHOWN:,} more: --json lists all"


def apart(found: Row) -> Iterator[str]:
    """What of A or B does not go together with the rest of it, as text."""
    for name in ("a", "b"):
        late = list(found["outdated"][name].items())
        for step, why in late[:NAMED]:
            yield f"{name.upper()} is not of one run: {step}: {why}"
        if len(late) > NAMED:
            yield f"  and {len(late) - NAMED:,} more steps of {name.upper()}"
        if steps := found["other_settings"][name]:
            more = f" and {len(steps) - NAMED:,} more" if len(steps) > NAMED else ""
            yield f"{name.upper()} has results of other settings or code than its config has now: {', '.join(steps[:NAMED])}{more}"


def lines(found: Row) -> Iterator[str]:
    """The difference as text."""
    for name in ("a", "b"):
        of = found[name]
        yield f"{name.upper()}: {of['variant']}, crawl2llm {of['crawl2llm']}, {of['written']}"
    yield from apart(found)
    for key, name in (("only_a", "A"), ("only_b", "B")):
        if found["steps"][key]:
            yield f"steps of {name} alone: {', '.join(found['steps'][key])}"
    yield from part("settings", found["settings"])
    if found["code"]:
        yield f"other code: {', '.join(found['code'])}"
    if found["input"]:
        yield f"other source files: {', '.join(found['input'])}"
    yield from part("versions", found["versions"])
    yield from part("machine", found["machine"])
    for step, of in found["partial"].items():
        (a, of_a), (b, of_b) = of["a"], of["b"]
        yield f"A has {a} of {of_a} tasks of {step}, B {b} of {of_b}: counts of that step are not compared"
    yield from part("documents", {key: value for key, value in found["counts"].items() if not key.endswith(".in")})
    told = {
        key: value
        for key, value in found["measures"].items()
        if key.rpartition(".")[2] in TOLD and not _numbered(".".join(key.split(".")[:2]))
    }
    yield from part("measures", found["sums"] | told)
    took = [sum(values[side] or 0 for values in found["seconds"].values()) for side in (0, 1)]
    yield f"seconds of all tasks: {took[0]:,.0f} → {took[1]:,.0f}"
    yield f"{len(found['same_files'])} of {len(found['seconds'])} steps have the same files, byte by byte"


def options(parser: command_line.Parser) -> None:
    command_line.configfile_option(parser, "the run's config: with it, results that variants share are found exactly")


def page(given: list[str]) -> int:
    """Write the page over all variants of what is there. Raises InputError where nothing is."""
    from crawl2llm.stages.report import variants
    from crawl2llm.stages.report.compare import project

    run = project(given or ["config.yaml"])
    found, held = variants.look(run, run.variants["main"]["report"]["compare"])
    if not any(made for variant in held.values() for made in variant.made.values()):
        raise InputError(f"no variant has any result in {Path('results').absolute()}: run it first")
    write_atomically(PAGE.with_name("compare.json"), pretty(found))
    write_atomically(PAGE, variants.render(run, found, held, ""))
    missing = [row["name"] for row in found["variants"] if row["missing"] or row["damaged"]]
    put(f"{quantity(len(found['variants']), 'variant')} in {quantity(len(found['settings']), 'setting')}: {PAGE}")
    if missing:
        put(f"not complete: {', '.join(missing)}")
    return 0


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described(
        "crawl2llm compare",
        __doc__,
        "results/main results/other\n  crawl2llm compare old.json results/main --json\n  crawl2llm compare --page --configfile mine.yaml",
    )
    parser.add_argument("a", type=Path, nargs="?", metavar="A", help="results of a variant, or a record")
    parser.add_argument("b", type=Path, nargs="?", metavar="B", help="the same of another run")
    parser.add_argument(
        "--page",
        action="store_true",
        help=f"write {PAGE}, of the variants of --configfile (config.yaml) that are there",
    )
    parser.add_argument("--json", action="store_true", help="the whole difference as JSON")
    options(parser)
    args = parser.parse_args(argv)
    given = [str(Path(path).absolute()) for path in args.configfile]
    if args.page:
        return page(given)
    if args.a is None or args.b is None:
        raise InputError("A and B: give two folders of results or records, or --page for all variants of a run")
    found = difference(load(args.a, given), load(args.b, given))
    return command_line.show(args, found, lambda: lines(found))


@command_line.answered
def write(argv: list[str] | None = None) -> int:
    """`crawl2llm record`."""
    parser = command_line.described(
        "crawl2llm record",
        "A run's record: one JSON with the settings, code, versions, machine, checksums and summaries of a variant's results.",
        "results/main --out run.json",
    )
    parser.add_argument(
        "results", type=Path, nargs="?", default=Path("results/main"), help="results of a variant (results/main)"
    )
    parser.add_argument("--out", type=Path, help="the file to write (else it is printed)")
    options(parser)
    args = parser.parse_args(argv)
    if not args.results.is_dir():
        raise InputError(f"{args.results} is no folder; give that of a variant, such as results/main")
    found = pretty(record(args.results, [str(Path(path).absolute()) for path in args.configfile]))
    if args.out:
        write_atomically(args.out, found)
    else:
        put(found, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
