"""Precision and recall of filters, by rule, from marks that people made on the pages of report.inspect.

FILE: what a page saved, JSON Lines. Precision is the share of dropped documents that were rightly dropped; recall the share of documents
that should be dropped which are, and a rule's recall its part of that. Both are estimated from the marks on random samples; marks near
thresholds are listed as faults. A mark counts where the document's verdict is still the same. Changes nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from crawl2llm.chain import command_line, filter_order, steps
from crawl2llm.commands.trace.results import Results, add_options, open_results
from crawl2llm.core.errors import InputError
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import mark_lines, mark_precision, mark_words


def run_for_marks(results: Results) -> Run:
    """The manifests that marks are joined with: every filter's select, its edits, and report.inspect.

    Raises InputError if one is not there.
    """
    filters = filter_order.used_filters(results.config)
    if not steps.is_used(steps.INSPECT, results.config):
        raise InputError(
            "report.inspect.samples is 0: without report.inspect it is not known of how many documents its samples were drawn"
        )
    needed = [*filter_order.verdict_steps(filters)[1:], *filter_order.edit_steps(filters), steps.INSPECT]
    paths = [
        results.manifest_path(step, task)
        for step in dict.fromkeys(needed)
        for task in steps.result_ids(step, results.config)
    ]
    if missing := next((path for path in paths if not path.exists()), None):
        raise InputError(f"{missing} is not there: run the workflow up to its step first")
    run = Run.read(paths)
    run.order = filters
    return run


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm marks", __doc__, "marks-main-heuristics-*.jsonl --configfile mine.yaml"
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of marks")
    add_options(parser)
    args = parser.parse_args(argv)
    marks = mark_lines.read_marks(args.files)
    with contextlib.ExitStack() as stack:
        results = open_results(args, stack)
        precision = mark_precision.marks_summary(run_for_marks(results), marks)
        precision["stale"] = results.stale_lines()
    stale = (f"not of today's settings: {name}" for name in precision["stale"])
    return command_line.print_findings(args, precision, lambda: [*mark_words.text_lines(precision), *stale])


if __name__ == "__main__":
    raise SystemExit(main())
