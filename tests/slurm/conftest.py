"""One cluster for a test session, and runs of the small chain on it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.slurm.cluster import RUN, Cluster
from tests.slurm.machine import obstacle

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROFILE = ROOT / "profiles" / "slurm"
# The profile's own pace is for jobs of ten minutes.
QUICK = (
    "--slurm-init-seconds-before-status-checks=1",
    "--max-status-checks-per-second=10",
    "--max-jobs-per-timespan=100/1s",
    "--latency-wait=5",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A running cluster without accounting; skips with the reason where there cannot be one."""
    if reason := obstacle():
        pytest.skip(reason)
    with Cluster() as made:
        yield made


def until(what: str, ready: Callable[[], object], seconds: float = 300) -> None:
    """Poll until `ready()` is true; fails the test, saying what was waited for, after `seconds`."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            pytest.fail(f"timed out after {seconds:g} s: {what}")
        time.sleep(0.1)


def slurm(*command: str) -> str:
    """A SLURM command's output."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout


def jobs_of(folder: Path) -> set[str]:
    """The ids of all jobs that were submitted from a folder, however long ago they ended."""
    ended = re.findall(
        r"^JobId=(\d+) .*? WorkDir=(.*?) ReservationName=",
        (RUN / "log/jobs.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    known = [line.split("|") for line in slurm("squeue", "-h", "--states=all", "-o", "%i|%Z").splitlines()]
    return {number for number, place in (*ended, *known) if place == str(folder)}


def own_profile(folder: Path, **values: object) -> Path:
    """A site's own profile, as docs/slurm.md says: a copy of the folder with other values on top."""
    site = shutil.copytree(PROFILE, folder)
    text = (site / "config.yaml").read_text(encoding="utf-8")
    for key, value in values.items():
        text, found = re.subn(rf"^  {key}: \S+ #", f"  {key}: {json.dumps(value)} #", text, flags=re.MULTILINE)
        assert found == 1, f"{key} is not among the profile's values"
    (site / "config.yaml").write_text(text, encoding="utf-8")
    return site


def heard() -> None:
    """Let SIGINT end a process again; a shell without job control has what it starts in the background ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Drive:
    """Snakemake on the chain `chain` (rule → tasks) in a folder of its own. `steps`: rule → steps of 0.2 s."""

    snakefile = HERE / "Snakefile"
    profile = PROFILE

    def __init__(self, folder: Path, chain: dict[str, int], steps: dict[str, int] | None = None) -> None:
        self.folder, self.chain, self.steps = folder, chain, steps or {}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(json.dumps({"chain": chain, "steps": self.steps}), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.runs = 0

    def start(self, *options: str) -> Drive:
        """Start Snakemake in a session of its own; its output goes to out-<n>.txt."""
        self.runs += 1
        where = ["--profile", str(self.profile), *QUICK]
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(self.snakefile), "--configfile=config.yaml"]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *where, *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=heard,
                env={
                    **os.environ,
                    "PATH": path,
                    "PYTHONPATH": str(ROOT),
                    "CRAWL2LLM_SCREEN": "snakemake",
                    **self.environment,
                },
            )
        return self

    @property
    def log(self) -> Path:
        """The output of the newest run."""
        return self.folder / f"out-{self.runs}.txt"

    @property
    def output(self) -> str:
        """What the newest run has said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def busy(self, **how: object) -> Path:
        """Let the run and its jobs meet a busy controller (busy.sh); returns the file that silences it altogether."""
        shim, silent = self.folder / "busy", self.folder / "silent"
        shim.mkdir()
        for name in ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel", "sshare", "sacctmgr"):
            (shim / name).symlink_to(HERE / "busy.sh")
        path = [str(Path(sys.executable).parent), str(shim), os.environ["PATH"]]
        self.environment = {
            "PATH": os.pathsep.join(path),
            "BUSY_SILENT": str(silent),
            "BUSY_LOG": f"{self.folder}/busy.log",
        }
        self.environment |= {f"BUSY_{name.upper()}": str(value) for name, value in how.items()}
        return silent

    @property
    def unheard(self) -> list[list[str]]:
        """The calls that went wrong: time, how, command and its arguments."""
        path = self.folder / "busy.log"
        return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def once_each(self) -> bool:
        """Whether each task was started once, by a job of its own, and SLURM has had no other job of this run."""
        starts = self.table("starts")
        numbers = jobs_of(self.folder)
        return (
            len({(row[1], row[2]) for row in starts})
            == len(starts)
            == len(numbers & {row[3] for row in starts})
            == len(numbers)
        )

    def send(self, number: signal.Signals) -> None:
        """A signal to Snakemake and its children, as a terminal sends it."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def end(self, seconds: float = 900) -> int:
        """Wait for the end; returns the exit status."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"Snakemake did not end within {seconds:g} s:\n{self.output[-3000:]}")

    def finish(self, seconds: float = 900) -> None:
        """Wait for the end; fails with the output unless the run succeeded."""
        status = self.end(seconds)
        assert status == 0, f"status {status}\n{self.output[-4000:]}"

    def working(self, rule: str, task: int = 0, steps: int = 3) -> bool:
        """Whether a task has done some steps and is not at its end."""
        work = self.folder / f"results/main/{rule}/{task:05d}.work"
        return work.exists() and len(work.read_text(encoding="utf-8").split()) >= steps

    def fact(self, rule: str, task: int = 0) -> dict[str, str]:
        """What the newest start of a task saw of its job."""
        return json.loads((self.folder / f"facts/{rule}-{task:05d}.json").read_text(encoding="utf-8"))

    def table(self, name: str) -> list[list[str]]:
        """Rows of starts.tsv or ends.tsv: time, rule, task, job."""
        path = self.folder / f"{name}.tsv"
        return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def results(self) -> dict[str, str]:
        """Every manifest's text."""
        base = self.folder / "results"
        return {str(path.relative_to(base)): path.read_text("utf-8") for path in sorted(base.rglob("*.manifest.json"))}

    def queue(self) -> list[str]:
        """The ids of this folder's jobs in the queue."""
        rows = (line.split("|") for line in slurm("squeue", "-h", "-o", "%i|%Z").splitlines())
        return [number for number, folder in rows if folder == str(self.folder)]

    def stop(self) -> None:
        """Leave nothing behind."""
        if self.process and self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.wait()
        with contextlib.suppress(subprocess.SubprocessError):
            if left := self.queue():
                slurm("scancel", *left)


@pytest.fixture(scope="module")
def drive(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Drive]]:
    """drive(chain, steps) makes a run; more than one may be made."""
    made: list[Drive] = []
    base, numbers = tmp_path_factory.mktemp("drive"), itertools.count()

    def make(chain: dict[str, int], steps: dict[str, int] | None = None) -> Drive:
        one = Drive(base / f"{next(numbers)}-{'-'.join(chain)}", chain, steps)
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


# Tasks of one chain, one after another; each is the arguments of task.py.
TASKS = "import json, sys; from tests.slurm.task import main; raise SystemExit(any([main(one) for one in json.load(sys.stdin)]))"


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Drive], dict[str, str]]:
    """The results of the same tasks one after another on this machine, without SLURM and without Snakemake."""
    known: dict[str, dict[str, str]] = {}
    base, lock = tmp_path_factory.mktemp("unbroken"), threading.Lock()

    def tasks(chain: dict[str, int], steps: dict[str, int]) -> Iterator[list[str]]:
        before: list[str] = []
        for rule, count in chain.items():
            made = [f"results/main/{rule}/{task:05d}.manifest.json" for task in range(count)]
            for task, manifest in enumerate(made):
                own = ["--rule", rule, "--shard", f"{task:05d}", "--steps", str(steps.get(rule, 2)), "--pause", "0"]
                yield [*own, "--manifest", manifest, "--log", "log", *before]
            before = made

    def results(other: Drive) -> dict[str, str]:
        key = json.dumps([other.chain, other.steps])
        with lock:
            if key not in known:
                local = Drive(base / str(len(known)), other.chain, other.steps)
                subprocess.run(
                    [sys.executable, "-c", TASKS],
                    input=json.dumps(list(tasks(other.chain, other.steps))),
                    text=True,
                    cwd=local.folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    check=True,
                )
                known[key] = local.results()
        return known[key]

    return results


SCENARIOS: dict[str, Callable[..., None]] = {}


def beside(scenario: Callable[..., None]) -> Callable[..., None]:
    """A test that runs beside the others of its kind, since most of it is waiting; it gets (drive, cluster, unbroken)."""
    SCENARIOS[scenario.__name__] = scenario

    def test(started: dict[str, Future[None]]) -> None:
        started[scenario.__name__].result()

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@pytest.fixture(scope="module")
def started(
    request: pytest.FixtureRequest,
    drive: Callable[..., Drive],
    cluster: Cluster,
    unbroken: Callable[[Drive], dict[str, str]],
) -> dict[str, Future[None]]:
    """The scenarios that this session selected, all started."""
    names = [item.name for item in request.session.items if item.name in SCENARIOS and item.path == request.path]
    pool = ThreadPoolExecutor(max_workers=max(1, len(names)))
    return {name: pool.submit(SCENARIOS[name], drive, cluster, unbroken) for name in names}
