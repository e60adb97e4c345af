"""Tries micro-batches and recomputation on the GPU (or CPU) of this machine, with the engine and the model of the config, and says which
lines to put into it.

Tokens and weights are random, and one process trains: under zero_stage 1 to 3 each of several has less in memory. A step of several
micro-batches is put together from one of one and one of two. It changes nothing. docs/commands/tune.md
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line, yaml_errors
from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.commands.plan.training import plan_summary, tokens_and_vocabulary
from crawl2llm.commands.tune.search import Setting, Trial, search
from crawl2llm.core import devices
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.nested_dicts import lookup
from crawl2llm.stages.pretrain.plan import UncountedError
from crawl2llm.training import resource_plan
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings

HEADER = "| micro_batch | computed again | compiled | tokens/s | MFU | peak memory |\n|---|---|---|---|---|---|"


def read_training(args: argparse.Namespace) -> tuple[dict[str, Any], TrainSettings, PlanSettings]:
    """(summary of pretrain.plan, pretrain.train, pretrain.plan) of the config that the options name; InputError if it is not known yet."""
    files = [Path(name) for name in args.configfile] or [Path("config.yaml")]
    config = configuration.validate(yaml_errors.read_layered(files), ", ".join(map(str, files)))
    variants = Project(config).variants
    if args.variant not in variants:
        raise InputError(f"--variant is {args.variant!r}; the config has {', '.join(variants)}")
    config = variants[args.variant]
    tokens, entries = tokens_and_vocabulary(LastRun(args.directory), args.variant)
    train = TrainSettings.model_validate(lookup(config, "pretrain.train"))
    if Degrees.of_settings(train):
        raise InputError("pretrain.train.parallel shares out a model over processes, and one process is measured here")
    try:
        summary = plan_summary(config, tokens, entries)
    except UncountedError as error:
        raise InputError(
            f"{error}; give --directory a run in which tokenize has ended, or set the keys in the config"
        ) from None
    return summary, train, PlanSettings.model_validate(lookup(config, "pretrain.plan"))


def first_setting(summary: dict[str, Any], train: TrainSettings) -> tuple[Setting, list[int]]:
    """(the config's own setting, the micro-batches that divide each step of a process, rising)."""
    sequences = max(1, resource_plan.step_sequences(summary) // (train.processes * train.nodes))
    sizes = [size for size in range(1, sequences + 1) if sequences % size == 0]
    names = ("activation_checkpointing", "selective_checkpointing", "compile_layers")
    fitting = max(size for size in sizes if size <= train.micro_batch)
    return Setting(fitting, **{name: getattr(train, name) for name in names}), sizes


def estimate_note(summary: dict[str, Any], train: TrainSettings, plan_settings: PlanSettings, setting: Setting) -> str:
    """Why a setting is not even tried: it would clearly take more memory than there is; "" if it is to be tried."""
    alone = {**vars(setting), "processes": 1, "nodes": 1}
    resources = resource_plan.plan_resources(summary, train.model_copy(update=alone), plan_settings)
    total = resource_plan.format_bytes(resources["memory"]["total"])
    return f"not tried: about {total} would be needed" if resources["refused"] else ""


def run_trials(
    summary: dict[str, Any], train: TrainSettings, plan_settings: PlanSettings, compiled: bool, seconds: float
) -> Iterator[Trial]:
    """The trials, each as it is done."""
    from crawl2llm.commands.tune.measure import Measurer, process_group

    first, sizes = first_setting(summary, train)
    with process_group(train) as device:
        measurer, deadline = Measurer(summary, train, device), time.monotonic() + seconds
        on_cpu = train.model_copy(update={"device": device.type})

        def measure(setting: Setting) -> Trial:
            with contextlib.suppress(InputError):  # of a GPU that has no name here
                if note := estimate_note(summary, on_cpu, plan_settings, setting):
                    return Trial(setting, note=note)
            return measurer.measure(setting)

        for trial in search(first, sizes, compiled, measure):
            yield trial
            if time.monotonic() > deadline:
                return


def trial_row(trial: Trial) -> str:
    """A trial as a row of the table."""
    setting = trial.setting
    speed = f"{trial.speed:,.0f}" if trial.tokens_per_second else trial.note
    used = f"{trial.mfu:.1%}" if trial.mfu is not None else "–"
    peak = f"{trial.peak_bytes / 2**30:.1f} GiB" if trial.peak_bytes else "–"
    compiled = "yes" if setting.compile_layers else "no"
    return f"| {setting.micro_batch} | {setting.recomputation} | {compiled} | {speed} | {used} | {peak} |"


def best_lines(trials: list[Trial], train: TrainSettings) -> tuple[dict[str, Any], list[str]]:
    """(keys of pretrain.train to change, lines that say so) by the fastest trial."""
    best = max(trials, key=lambda trial: trial.speed)
    if len(trials) == 1:  # a search that ends by itself has tried recomputation too
        return {}, [
            f"nothing but {'this' if best.speed else 'this, which does not fit,'} was tried in the time: raise --minutes"
        ]
    if not best.speed:
        return {}, ["nothing fits: make the model or the context smaller, or share it out (zero_stage)"]
    keys = {key: value for key, value in vars(best.setting).items() if getattr(train, key) != value}
    if not best.setting.activation_checkpointing:
        keys.pop("selective_checkpointing", None)  # it says nothing then
    if not keys:
        return {}, ["the config's own settings are the fastest of these"]
    before = trials[0].speed
    gain = f", {best.speed / before - 1:+.0%}" if before else ""
    again = " (compile_layers trains again)" if "compile_layers" in keys else ""
    lines = [f"put into the config{gain}{again}:", "pretrain:", "  train:"]
    return keys, lines + [f"    {key}: {json.dumps(value)}" for key, value in keys.items()]


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    """Try settings and print the table; the exit status."""
    parser = command_line.command_parser("crawl2llm tune", __doc__, "--configfile configs/1b-4-nodes.yaml --compile")
    command_line.add_configfile_option(parser, "the run's config (config.yaml)")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's folder, whose tokens decide what is auto (.)"
    )
    parser.add_argument("--variant", default="main", help="a variant of the config (main)")
    parser.add_argument("--minutes", type=float, default=2, help="after these nothing new is tried (2)")
    parser.add_argument("--compile", action="store_true", help="try compiled layers too")
    parser.add_argument("--json", action="store_true", help="the trials and the keys as JSON")
    args = parser.parse_args(argv)
    summary, train, plan_settings = read_training(args)
    show: Callable[[str], None] = (lambda _: None) if args.json else (lambda line: print_line(line, flush=True))
    show(f"{resource_plan.format_count(summary['parameters']['total'])} parameters, context {summary['shape']['context']:,}, "
         f"{', '.join(gpu for gpu in devices.visible_gpus()[:1]) or 'CPU'}\n\n{HEADER}")  # fmt: skip
    trials, start = list[Trial](), time.monotonic()
    for trial in run_trials(summary, train, plan_settings, args.compile, 60 * args.minutes):
        trials.append(trial)
        show(trial_row(trial))
        spent = time.monotonic() - start
        if args.json or sys.stderr.isatty():  # else it would cut the table apart
            print_line(
                f"{spent:.0f} s of about {60 * args.minutes:.0f}, {len(trials)} tried, {len(trials) / spent:.2f}/s",
                file=sys.stderr,
            )
    keys, lines = best_lines(trials, train)
    show("\n" + "\n".join(lines))
    if args.json:
        print_line(json.dumps({"trials": [trial.as_row() for trial in trials], "change": keys}, indent=1))
    return int(not any(trial.speed for trial in trials))


if __name__ == "__main__":
    raise SystemExit(main())
