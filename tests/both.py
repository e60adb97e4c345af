"""Every test, in two runs of pytest side by side: those that need the SLURM cluster, which mostly wait, and all others.

    python -m tests.both [options of pytest]

Both start from the same complete tiny run, which the first that needs it makes. The cluster's run is shown when it has
ended. (pytest-xdist 3.8 does not keep tests of one group in one worker under pytest 9.2.)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main(options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    with tempfile.TemporaryDirectory(prefix="crawl2llm-tests-") as name:
        environment = {**os.environ, "CRAWL2LLM_COMPLETE": str(Path(name) / "complete")}
        log = Path(name) / "slurm.log"
        with log.open("w") as out:
            cluster = subprocess.Popen([*command, "tests/slurm"], stdout=out, stderr=out, env=environment)
            others = subprocess.run([*command, "tests", "--ignore=tests/slurm"], env=environment, check=False)
            print("tests/slurm, which ran beside these:", flush=True)
            cluster.wait()
        sys.stdout.write(log.read_text(encoding="utf-8", errors="replace"))
    return others.returncode or cluster.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
