"""One task of tests/slurm/Snakefile: hashes its inputs in `--steps` steps, as a shard is read in batches.

It keeps the hash so far in a file of its own, beside the manifest, and resumes from the newest line there: what it writes is
wrong if two copies write at the same time, and right after any kill. A file `fail-<rule>` in the working directory makes
a rule fail once (it is removed as it does), and `hold-<rule>` holds that many MB of memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from crawl2llm.core.console import Progress
from crawl2llm.core.retries import ask_slurm

FACTS = ("CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "SLURM_JOB_ID")


def note(name: str, *cells: object) -> None:
    """Append a line to a table of this run; a short write to a file opened for appending is one piece."""
    with Path(name).open("a", encoding="utf-8") as handle:
        handle.write("\t".join(map(str, (f"{time.time():.2f}", *cells, os.environ.get("SLURM_JOB_ID", "-")))) + "\n")


def fails(rule: str) -> bool:
    """Whether this start of the rule is to fail."""
    path = Path(f"fail-{rule}")
    if path.exists():
        path.unlink()
        return True
    return False


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rule", required=True)
    parser.add_argument("--shard", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--pause", type=float, required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("inputs", nargs="*", type=Path)
    args = parser.parse_args(argv)
    note("starts.tsv", args.rule, args.shard)
    if fails(args.rule):
        print(f"error: {args.rule} was told to fail once", file=sys.stderr)
        return 1
    args.manifest.parent.mkdir(parents=True, exist_ok=True)
    facts = {name: os.environ.get(name) for name in FACTS}
    if "SLURM_JOB_ID" in os.environ:
        facts["job"] = ask_slurm("scontrol", "show", "job", "-o", os.environ["SLURM_JOB_ID"])
    Path("facts").mkdir(exist_ok=True)
    (Path("facts") / f"{args.rule}-{args.shard}.json").write_text(json.dumps(facts), encoding="utf-8")
    work = args.manifest.with_name(f"{args.shard}.work")
    lines = work.read_text(encoding="utf-8").split() if work.exists() else []
    hold = Path(f"hold-{args.rule}")
    held = bytearray(int(hold.read_text(encoding="utf-8")) << 20) if hold.exists() else bytearray()
    held[::4096] = b"x" * len(held[::4096])  # memory counts once it is written to
    progress = Progress(args.steps, "steps", done=len(lines))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in args.inputs))
    state.update(f"{args.rule} {args.shard}".encode())
    for step in range(args.steps):
        state.update(b"step")
        if step < len(lines):
            continue
        time.sleep(args.pause)
        with work.open("a", encoding="utf-8") as handle:
            handle.write(state.hexdigest() + "\n")
        progress.done += 1
        args.log.write_text(f"{progress.status_line()}\n", encoding="utf-8")
    text = json.dumps({"rule": args.rule, "shard": args.shard, "lines": work.read_text(encoding="utf-8").split()})
    args.manifest.write_text(text + "\n", encoding="utf-8")
    note("ends.tsv", args.rule, args.shard)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
