"""Say which trainings of a sweep go on after each rung, and why the others stop: by the losses of all contenders at that rung."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, pretty_json, write_atomically
from crawl2llm.stages.pretrain.halving import judging


def judge_rungs(rows: list[dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """{rungs: [{rung, share, settings}], stopped: {contender: {rung, step, why}}} of what all contenders reached at all rungs."""
    rungs, stopped = [], dict[str, dict[str, Any]]()
    for number, share in enumerate(settings["rungs"], 1):
        row_by_contender = {row["contender"]: row for row in rows if row["rung"] == number}
        ranking = judging.rank_settings(
            judging.loss_by_contender(row_by_contender.values()), settings["settings"], settings["keep"]
        )
        rungs.append({"rung": number, "share": share, "settings": ranking})
        for entry in ranking:
            for name in entry["contenders"] if not entry["stays"] else ():
                words = judging.stop_reason(ranking, entry["setting"])
                stopped[name] = {"rung": number, "step": row_by_contender[name]["step"], "why": words}
    return {"rungs": rungs, "stopped": stopped}


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judgement = judge_rungs(judging.read_rungs(args.rungs), settings)
    for name, facts in judgement["stopped"].items():
        log.info("%s stops at rung %d, after step %s: %s", name, facts["rung"], f"{facts['step']:,}", facts["why"])
    out = args.manifest.with_name(judging.FATES_FILE)
    write_atomically(out, pretty_json(judgement))
    going_on = sorted(settings["settings"].keys() - judgement["stopped"].keys())
    manifest.summary = {"rungs": settings["rungs"], "contenders": len(settings["settings"]), "to the end": going_on}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "pretrain.halve",
        __doc__,
        "--config config.yaml --rungs results/main/pretrain/rung/*.manifest.json --manifest /tmp/halve/manifest.json",
    )
    parser.add_argument("--rungs", required=True, type=Path, nargs="+", help="manifests of pretrain.rung")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
