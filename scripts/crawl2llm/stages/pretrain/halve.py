"""Say which trainings of a sweep go on after each rung, and why the others stop: by the losses of all contenders at that rung."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, pretty_json, write_atomically
from crawl2llm.core.settings import Number
from crawl2llm.stages.pretrain.halving import judging
from crawl2llm.stages.pretrain.settings import HalveSettings


class Task(HalveSettings):
    """What the program is given. settings: contender → the setting that it is judged with."""

    rungs: list[Number]
    settings: dict[str, str]
    keep: Number


def judge_rungs(rows: list[dict[str, Any]], settings: Task) -> dict[str, Any]:
    """{rungs: [{rung, share, settings}], stopped: {contender: {rung, step, why}}} of what all contenders reached at all rungs."""
    rungs, stopped = [], dict[str, dict[str, Any]]()
    for number, share in enumerate(settings.rungs, 1):
        row_by_contender = {row["contender"]: row for row in rows if row["rung"] == number}
        ranking = judging.rank_settings(
            judging.loss_by_contender(row_by_contender.values()), settings.settings, settings.keep
        )
        rungs.append({"rung": number, "share": share, "settings": ranking})
        for entry in ranking:
            for name in entry["contenders"] if not entry["stays"] else ():
                words = judging.stop_reason(ranking, entry["setting"])
                stopped[name] = {"rung": number, "step": row_by_contender[name]["step"], "why": words}
    return {"rungs": rungs, "stopped": stopped}


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    judgement = judge_rungs(judging.read_rungs(args.rungs), settings)
    for name, facts in judgement["stopped"].items():
        log.info("%s stops at rung %d, after step %s: %s", name, facts["rung"], f"{facts['step']:,}", facts["why"])
    out = args.manifest.with_name(judging.FATES_FILE)
    write_atomically(out, pretty_json(judgement))
    going_on = sorted(settings.settings.keys() - judgement["stopped"].keys())
    manifest.summary = {"rungs": settings.rungs, "contenders": len(settings.settings), "to the end": going_on}
    return [out]


main = Program("pretrain.halve", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
