"""Settings of all tests, and the run that several of them start from."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine takes longer for an example than hypothesis allows; that is no failure of what is tested. The examples are the same in
# every run, so that a run says something of what was edited; with LONG set they are others each time, and twice as many.
LONG = "CRAWL2LLM_LONG"  # set: tests marked `long` run too
settings.register_profile(
    "usual", deadline=None, derandomize=LONG not in os.environ, max_examples=100 if LONG in os.environ else 50
)
settings.load_profile("usual")

# Threads of torch that wait for each other give up their core, here and in all that tests start: by default they keep it, and where more
# of them are at work than there are cores an operation takes many times as long. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

LONGEST = (
    "unit/training/",
    "unit/stages/pretrain/",
    "unit/stages/finetune/",
    "unit/stages/evaluate/",
    "tests/workflow/",
)
SHARED = "CRAWL2LLM_TESTS_SHARED"  # a folder of two runs of pytest, see tests/__main__.py


END = "CRAWL2LLM_TESTS_END"  # seconds since 1970 after which no test begins, on a machine that is too slow for all


LEFT_OUT = "left-out"  # in SHARED: a line for each test for which no time was left
FAILED = "failed"  # in SHARED: a line for each test that failed, with what it says


def write_down(name: str, line: str) -> None:
    """Append `line` to the file `name` for the last lines of the run, which tests/__main__.py prints."""
    if shared := os.environ.get(SHARED):
        with Path(shared, name).open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down a failure. With workers, their controller does, which hears of a worker's end too."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = " ".join((crash.message if crash else report.longreprtext).split())
        write_down(FAILED, f"{report.nodeid} ({report.when}): {why[:300]}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for which no time is left, and write it down for the last lines of the run."""
    if time.time() > float(os.environ.get(END, "inf")):
        write_down(LEFT_OUT, item.nodeid)
        pytest.skip(f"no time was left: {END}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes first, so that no worker is left with one at the end. Skip what is marked `long`, with the reason."""
    items.sort(key=lambda item: not any(part in item.nodeid for part in LONGEST))
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get(LONG):
            item.add_marker(pytest.mark.skip(reason=f"takes minutes more: {LONG}=1"))


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """What a test does to the variables of this process ends with it: those of a training would change what later tests measure."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of every fixture and test: an empty folder, so that none depends on what a run left where the tests start."""
    folder = tmp_path_factory.mktemp("empty")
    with contextlib.chdir(folder):
        yield folder


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_folder: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Starts each test in `empty_folder`, and fails it if it, or a fixture before it, leaves something there."""
    with contextlib.chdir(empty_folder):
        yield
    written = sorted(path.name for path in empty_folder.iterdir())
    for name in written:  # the next test starts in an empty folder too
        path = empty_folder / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if written:
        pytest.fail(f"{request.node.nodeid} wrote into the working directory: {', '.join(written)}", pytrace=False)


def complete_in(common: Path) -> Path:
    """The folder below `common` in which the tiny run of the whole workflow is complete; it is made by whoever asks first.

    It is made without a network, where this machine lets one try; `printed` there is what it said.
    """
    from tests.workflow.conftest import can_be_alone, run

    folder = common / "complete"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "printed").exists():
            folder.mkdir(exist_ok=True)
            text = run(folder, network=not can_be_alone())
            (folder / "printed").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny run of the whole workflow is complete. Tests must leave it as it is."""
    base = tmp_path_factory.getbasetemp()  # of a worker of pytest-xdist: a folder in that of them all
    return complete_in(Path(os.environ.get(SHARED) or (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)))


@pytest.fixture
def group() -> Iterator[Callable[[int], tuple[str, ...]]]:
    """group(megabytes): a command prefix that runs what follows in a control group with so much memory.

    Skips the test, with the reason, where none can be made.
    """
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines())
    first = "memory" in own  # cgroup v1
    folder = Path(f"/sys/fs/cgroup/memory{own['memory']}" if first else f"/sys/fs/cgroup{own.get('', '/')}")
    folder = folder / f"crawl2llm-test-{os.getpid()}"

    def make(megabytes: int) -> tuple[str, ...]:
        try:
            folder.mkdir()
            (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(megabytes << 20))
        except OSError as error:
            pytest.skip(f"no control group with a limit can be made here: {error}")
        return ("sh", "-c", f'echo $$ > "{folder}/cgroup.procs" && exec "$@"', "sh")

    yield make
    if folder.exists():
        folder.rmdir()
