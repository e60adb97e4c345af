"""The command for people, `crawl2llm COMMAND …`: each command is a program of its own, listed here."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from importlib.metadata import version

from crawl2llm.core.console import print_line
from crawl2llm.core.errors import NotBuiltError

COMMANDS = {  # name: (module with main(argv), what it does)
    "new": ("crawl2llm.commands.new.command", "look at your files and write a config for them"),
    "keys": ("crawl2llm.commands.keys", "find keys of the config by a word: allowed values, default, meaning"),
    "plan": ("crawl2llm.commands.plan.command", "what would run, why, and about how long it takes"),
    "accept": (
        "crawl2llm.commands.accept",
        "mark results as of today's settings and code, where you know that an edit changed nothing",
    ),
    "report": ("crawl2llm.commands.partial_report", "the report of what is there so far, and what is missing"),
    "status": ("crawl2llm.commands.status", "what runs where on SLURM, until when, what waits and why"),
    "preflight": ("crawl2llm.commands.preflight", "compare the plan with the SLURM cluster's limits; submits nothing"),
    "gpu-check": (
        "crawl2llm.commands.gpu_check.command",
        "what the GPUs of this machine can do, before a training spends hours on them",
    ),
    "tune": (
        "crawl2llm.commands.tune.command",
        "try micro-batches and recomputation on this machine, and say what to put into the config",
    ),
    "fetch-model": (
        "crawl2llm.commands.fetch_model.command",
        "a published model from the Hugging Face hub, at one commit, before a run",
    ),
    "export": ("crawl2llm.training.export", "which checkpoints there are; one of them as a model for transformers"),
    "serve": (
        "crawl2llm.commands.serve.command",
        "talk to a run's models: a page to chat in, and an endpoint as OpenAI's",
    ),
    "sample": ("crawl2llm.commands.serve.sample", "what a model of a run writes, on the terminal"),
    "record": (
        "crawl2llm.commands.compare.record_command",
        "one JSON of a run: settings, code, versions, machine, checksums, summaries",
    ),
    "compare": ("crawl2llm.commands.compare.command", "the difference of two runs, here or from another machine"),
    "whatif": ("crawl2llm.commands.whatif.command", "what other thresholds would keep, without running anything"),
    "marks": (
        "crawl2llm.commands.marks.command",
        "precision and recall of filters, from marks on the pages of report.inspect",
    ),
    "trace": ("crawl2llm.commands.trace.command", "what became of a document, and what a training step read"),
    "who-wrote": (
        "crawl2llm.commands.trace.attribution",
        "where the training text has a text that a model wrote",
    ),
    "forget": (
        "crawl2llm.commands.trace.takedown",
        "what a takedown of a domain touches, and the edit that leaves it out",
    ),
    "decontaminate": (
        "crawl2llm.filters.decontaminate.command",
        "search a corpus for items of evaluation sets, and write it without them",
    ),
    "clean": (
        "crawl2llm.commands.clean.command",
        "what the config does not use, with sizes; removes it after a question",
    ),
    "verify": ("crawl2llm.commands.verify", "compare every file with its manifest"),
    "docs": ("tools.docs", "write again what is generated in docs/ and schemas/"),
}


def usage_text() -> str:
    """The list of commands, as `crawl2llm --help` prints it."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {words}" for name, (_, words) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: crawl2llm COMMAND [options]",
            "",
            "commands:",
            *rows,
            "",
            "`crawl2llm COMMAND --help` shows a command's options and an example; `crawl2llm --version` says which version this is.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command; its exit status, 2 for one that is not known, or a shell's for Ctrl-C and a closed pipe."""
    try:
        try:
            return run_command(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        # What is left to print has nowhere to go; Python would complain of it at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print_line("stopped by Ctrl-C", file=sys.stderr)
        return 128 + signal.SIGINT


def run_command(argv: list[str]) -> int:
    """Run a command, or print the list of them."""
    if not argv or argv[0] in ("-h", "--help"):
        print_line(usage_text())
        return 0
    if argv[0] in ("-V", "--version"):
        print_line(f"crawl2llm {version('crawl2llm')}")
        return 0
    if argv[0] not in COMMANDS:
        print_line(f"error: {argv[0]!r} is no command; allowed are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return int(importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:]) or 0)
    except NotBuiltError as error:
        print_line(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
