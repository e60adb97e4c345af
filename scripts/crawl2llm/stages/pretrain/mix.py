"""Draw the order in which the training reads its groups (sources, languages, qualities, topics), and say before it what that takes.

Writes `mix.json`: groups, phases and the share of each group in each phase; `spans.npy`: where in the training stream each group's
documents are; and with `packing: best_fit` the windows that they were packed into, group by group (training/packing.py). No token is
written again. The order itself is a formula of these and the seed (training/mix_order.py). The manifest's summary has, for each group,
its tokens, those that are trained on, and the epochs that this is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, scratch_folder, write_atomically
from crawl2llm.core.phrases import and_more
from crawl2llm.stages.pretrain.mix_parts import Parts, add_by_document, add_by_source, by_language, by_quality, by_topic
from crawl2llm.training import auto, data, mix_reader, packing, schedule
from crawl2llm.training.mix_order import MixOrder, largest_deviation
from crawl2llm.training.mix_shares import (
    SECTION,
    Group,
    Phase,
    check_windows,
    last_steps,
    plan_phases,
    requested_shares,
)
from crawl2llm.training.packed_windows import BEST_FIT, PACKING
from crawl2llm.training.pretraining_settings import MixSettings, ResolvedSettings, TrainSettings

WARM = 10  # batches before a share is compared with what it should be: in the first, one window more or less is much
# Windows at most whose shares are compared one by one; later ones differ less (training/mix_order.py).
COMPARED_WINDOWS = 1 << 20
LOGGED_GROUPS = 20  # groups in the log, the largest; the manifest's summary has all
EPOCH_TOLERANCE = 0.01  # a difference from the epochs that were asked for that is said


def phase_summaries(
    planned_phases: Sequence[Phase],
    mix: MixSettings,
    groups: Sequence[Group],
    plan: schedule.Plan,
    train: ResolvedSettings,
) -> list[dict[str, Any]]:
    """Each phase for the summary: its steps and tokens, and by group the share asked for, the share, and the epochs in the phase."""
    ends, out = last_steps(mix.phases, plan, train.decay), []
    for number, (phase, end) in enumerate(zip(planned_phases, ends, strict=True), 1):
        wanted_shares = requested_shares(mix.phases[number - 1], number, groups)
        out.append(
            {
                "steps": [ends[number - 2] + 1 if number > 1 else 1, end],
                "tokens": phase.windows * plan.context,
                "groups": {
                    group.name: {
                        "asked": before,
                        "share": share,
                        "epochs": share * phase.windows / group.windows if group.windows else 0.0,
                    }
                    for group, before, share in zip(groups, wanted_shares, phase.shares, strict=True)
                },
            }
        )
    return out


def log_mix(summary: dict[str, Any], mix: MixSettings) -> None:
    """Log what the mix takes of each group, and warn of what a person may not expect."""
    groups = summary["groups"]
    for name in sorted(groups, key=lambda name: (-groups[name]["trained"], name))[:LOGGED_GROUPS]:
        parts = [f"{100 * phase['groups'][name]['share']:.2f} %" for phase in summary["phases"]]
        log.info(
            "%s: %s tokens, %s of the training, which reads %s: %.2f epochs",
            name, f"{groups[name]['tokens']:,}", ", then ".join(parts), f"{groups[name]['trained']:,}", groups[name]["epochs"],
        )  # fmt: skip
    if len(groups) > LOGGED_GROUPS:
        log.info("and %s more groups, in the manifest's summary", len(groups) - LOGGED_GROUPS)
    if capped := summary["held"]:
        capped_text = [f"{name} ({groups[name]['epochs']:.2f} epochs)" for name in capped]
        log.warning(
            "less than is asked for is there, so held at their caps, and the others have the rest: %s",
            and_more(capped_text, LOGGED_GROUPS),
        )
    if unread := [name for name, group in groups.items() if not group["trained"]]:
        log.warning("never read: %s", and_more(unread, LOGGED_GROUPS))
    for number, (phase, phase_settings) in enumerate(zip(summary["phases"], mix.phases, strict=True), 1):
        for name, wanted_epochs in (phase_settings.epochs or {}).items():
            epochs = phase["groups"][name]["epochs"]
            if abs(epochs - wanted_epochs) > EPOCH_TOLERANCE * wanted_epochs:
                log.warning(
                    "%s.phases.%s asks for %g epochs of %s and has %.2f, as it trains on %s tokens: epochs are proportions; they are "
                    "reached with %s tokens", SECTION, number, wanted_epochs, name, epochs, f"{phase['tokens']:,}",
                    f"{round(phase['tokens'] * wanted_epochs / epochs):,}" if epochs else "more",
                )  # fmt: skip
                break
    away = summary["deviation"]
    log.info(
        "from step %s on, each group has its share of all tokens until then within %.2f %% of these (%s at most, after %s windows)",
        WARM + 1, 100 * away["largest"], away["group"], f"{away['windows']:,}",
    )  # fmt: skip


class Task(MixSettings):
    """What the program is given."""

    train: TrainSettings


def pack_group_windows(
    tokens: list[Path], context: int, spans_file: Path, groups: list[Group], sizes: Sequence[int]
) -> tuple[list[Group], list[Path], dict[str, int]]:
    """The groups with as many windows as best fit makes of their documents, the files of these, and what was made of all documents.

    sizes: spans of each group.
    """
    parts = np.split(np.load(spans_file, mmap_mode="r"), np.cumsum(sizes)[:-1], axis=1)
    spans = [packing.Spans(part[0], part[1], group.tokens) for part, group in zip(parts, groups, strict=True)]
    files, totals = packing.write_packing(data.open_split(tokens, "train"), context, spans_file.parent, spans)
    packed = [replace(group, windows=made["windows"]) for group, made in zip(groups, totals, strict=True)]
    return packed, files, packing.add_totals(totals)


def body(args: argparse.Namespace, mix: Task, manifest: Manifest) -> list[Path]:
    shards = [Manifest.read(path) for path in args.tokens]
    tokens = sum(shard.summary["train"]["tokens"] for shard in shards)
    train = auto.resolve(mix.train, tokens, Manifest.read(args.tokenizer).summary["vocabulary"])
    context = train.model.context
    folder = args.manifest.parent
    folder.mkdir(parents=True, exist_ok=True)
    spans, facts = folder / mix_reader.SPANS, folder / mix_reader.FILE
    borders_: list[float] = []
    with scratch_folder(folder / ".parts") as aside:
        parts = Parts(aside)
        if mix.by == "source":
            add_by_source(args.tokens, parts)
        elif mix.by == "language":
            add_by_document(args.tokens, parts, by_language(args.signals))
        elif mix.by == "topic":
            add_by_document(args.tokens, parts, by_topic(args.signals))
        else:
            names, borders_ = by_quality(args.tokens, args.signals, mix.buckets)
            add_by_document(args.tokens, parts, names)
        groups, sizes = parts.write(spans, context)
    packs: list[Path] = []
    totals: dict[str, int] = {}
    if train.packing == BEST_FIT:
        groups, packs, totals = pack_group_windows(args.tokens, context, spans, groups, sizes)
    check_windows(groups, context)
    plan = schedule.make_plan(train, tokens, totals.get("windows"))
    planned_phases, capped = plan_phases(mix, groups, plan, train.decay)
    order = MixOrder(planned_phases, [group.name for group in groups], [group.windows for group in groups], train.seed)
    whole = plan.window_span(plan.steps + 1)[0]
    read = order.count_read_windows(whole)
    warm = min(plan.window_span(WARM + 1)[0], whole)
    largest, group, windows = largest_deviation(order, warm, min(whole, max(COMPARED_WINDOWS, warm)))
    group_facts = [
        {"name": group.name, "tokens": group.tokens, "windows": group.windows, "spans": size}
        for group, size in zip(groups, sizes, strict=True)
    ]
    write_atomically(
        facts,
        json.dumps(mix_reader.mix_facts(group_facts, planned_phases, tokens, plan.context, train.packing), indent=1)
        + "\n",
    )
    manifest.summary = {
        "by": mix.by,
        **({"borders": borders_} if borders_ else {}),
        "tokens": whole * plan.context,
        "steps": plan.steps,
        "groups": {
            group.name: {
                "tokens": group.tokens,
                "trained": int(number) * plan.context,
                "epochs": int(number) / group.windows if group.windows else 0.0,
            }
            for group, number in zip(groups, read, strict=True)
        },
        "phases": phase_summaries(planned_phases, mix, groups, plan, train),
        "held": capped,
        "deviation": {"largest": largest, "group": groups[group].name, "windows": windows, "after_steps": WARM},
        "spans": int(np.sum(sizes)),
        **({PACKING: {str(context): totals}} if totals else {}),
    }
    log_mix(manifest.summary, mix)
    return [facts, spans, *packs]


main = Program("pretrain.mix", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
