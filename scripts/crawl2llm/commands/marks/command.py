"""Precision and recall of filters, by rule, from marks that people made on the pages of report.inspect.

FILE: what a page saved, JSON Lines. Precision is the share of dropped documents that were rightly dropped; recall the share of documents
that should be dropped which are, and a rule's recall its part of that. Both are estimated from the marks on random samples; marks near
thresholds are listed as faults. A mark counts where the document's verdict is still the same. Changes nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from crawl2llm.chain import command_line, filter_order, steps
from crawl2llm.commands.trace.results import Results, opened_results, options
from crawl2llm.core.errors import InputError
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import mark_lines, mark_precision, mark_words


def run_of(results: Results) -> Run:
    """The manifests that marks are joined with: every filter's select, its edits, and report.inspect.

    Raises InputError where one is not there.
    """
    used = filter_order.filters(results.config)
    if not steps.is_used(steps.INSPECT, results.config):
        raise InputError(
            "report.inspect.samples is 0: without report.inspect it is not known of how many documents its samples were drawn"
        )
    needed = [*filter_order.verdicts(used)[1:], *filter_order.edits(used), steps.INSPECT]
    paths = [results.path(step, task) for step in dict.fromkeys(needed) for task in steps.ids(step, results.config)]
    if lacking := next((path for path in paths if not path.exists()), None):
        raise InputError(f"{lacking} is not there: run the workflow up to its step first")
    run = Run.read(paths)
    run.order = used
    return run


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described("crawl2llm marks", __doc__, "marks-main-heuristics-*.jsonl --configfile mine.yaml")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of marks")
    options(parser)
    args = parser.parse_args(argv)
    found = mark_lines.read(args.files)
    with contextlib.ExitStack() as stack:
        results = opened_results(args, stack)
        told = mark_precision.told(run_of(results), found)
        told["stale"] = results.stale()
    stale = (f"not of today's settings: {one}" for one in told["stale"])
    return command_line.show(args, told, lambda: [*mark_words.lines(told), *stale])


if __name__ == "__main__":
    raise SystemExit(main())
