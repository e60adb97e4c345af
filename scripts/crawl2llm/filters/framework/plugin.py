"""The programs of a filter outside the project (chain/plugins.py): `score` and `select` of the framework, with what its file declares.

An error in the file is one that a person can mend: it names the filter, the file, the line and the document.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from crawl2llm.chain import plugins
from crawl2llm.chain.command_line import report_errors
from crawl2llm.chain.step import stage_of
from crawl2llm.chain.step_program import Program
from crawl2llm.chain.yaml_errors import read_config
from crawl2llm.core.errors import InputError
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework import plugin_loading, score, select
from crawl2llm.filters.framework.rules import Rules
from crawl2llm.filters.framework.score import SPANS, Measuring, Row

T = TypeVar("T")


def call_plugin(plugin: plugins.PluginFilter, function: Callable[..., T], *args: Any, of: str = "") -> T:
    """What a function of a plug-in gives. Raises InputError that says where it failed; of: the document, for this message."""
    try:
        return function(*args)
    except InputError:  # in words already
        raise
    except (Exception, SystemExit) as error:
        files = plugin_loading.files_of(plugin.name, str(Path(plugin.display).parent), plugin.sources)
        raise InputError(f"{plugin_loading.fault_text(error, plugin.name, files)}{of}") from error


def guarded_class(plugin: plugins.PluginFilter) -> type[Measuring[Any]]:
    """The class that measures, whose errors name the filter, the file, the line and the document."""
    types = {field.name: field.type for field in plugin.columns if field.name not in score.IDENTITY}

    class Guarded(Measuring[Any]):
        columns, edits = plugin.measuring.columns, plugin.measuring.edits
        reads_texts, reads_languages = plugin.measuring.reads_texts, plugin.measuring.reads_languages

        def __init__(self, settings: Any) -> None:
            super().__init__(settings)
            self.measuring = call_plugin(plugin, plugin.measuring, settings)

        def measure(self, document: Row) -> Row:
            of = f"; document {document['id']}"
            row = call_plugin(plugin, self.measuring.measure, document, of=of)
            problem = self.row_problem(row)
            if problem:
                raise InputError(f"{plugin.display}: the filter {plugin.name}: measure {problem}{of}")
            return row

        def row_problem(self, row: Any) -> str:
            """What is wrong with the measures of a document, in words; "" of nothing."""
            if not isinstance(row, dict):
                return f"returned {row!r:.80}, and not a dictionary of measures"
            if self.edits and SPANS not in row:
                return f"returned no {SPANS!r}, which a filter that edits has to return"
            for name, value in row.items():
                if name == SPANS and self.edits:
                    continue
                if name not in types:
                    return f"returned {name!r}, which is not among its measures: {', '.join(types)}"
                try:
                    pa.scalar(value, types[name])
                except (pa.ArrowException, TypeError, ValueError):
                    return f"returned {value!r:.80} for {name}, which is not of type {types[name]}"
            return ""

        def summary(self) -> Row:
            summary = call_plugin(plugin, self.measuring.summary)
            try:
                json.dumps(summary)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"{plugin.display}: the filter {plugin.name}: summary cannot be JSON: {error}"
                ) from error
            return summary

    return Guarded


def rules_of(name: str, settings: Settings) -> Rules:
    """The rules of a filter of a plug-in. settings: of its `select`."""
    plugin = plugins.LOADED[name]
    return call_plugin(plugin, lambda: list(plugin.rules(settings)))


def step_program(step: str) -> Program[Any]:
    """The program of a step of a plug-in. Raises InputError for a step of none that is loaded."""
    name = stage_of(step)
    if name not in plugins.LOADED:
        raise InputError(f"{step}: --config names no plug-in with a filter {name}")
    plugin = plugins.LOADED[name]
    doc = plugin.module.__doc__ or name
    if step.endswith(".score"):
        return score.program(step, doc, guarded_class(plugin), plugin.columns)
    return select.program(step, doc, partial(rules_of, name))


def load_plugins_for(words: list[str]) -> None:
    """Load the plug-ins of a program's `--config`: a fingerprint, or a config file."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", default="{}")
    option = parser.parse_known_args(words)[0].config
    if not option.lstrip().startswith("{"):
        plugins.load_plugins_of(read_config(Path(option)))
    elif plugins.KEY in (planned := json.loads(option)):  # crawl2llm whatif has them already
        plugins.use_plugins(planned[plugins.KEY], planned[plugins.FILTERS_KEY])


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Run the step that the first word names, with the options behind it."""
    step, *words = sys.argv[1:] if argv is None else argv
    load_plugins_for(words)
    if argv is None:
        sys.argv = [sys.argv[0], *words]
    return step_program(step)(None if argv is None else words)


if __name__ == "__main__":
    raise SystemExit(main())
