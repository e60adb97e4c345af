"""A run folder whose name a shell would obey: the workflow runs in it on SLURM, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawl2llm.slurm.executor import quote_wrapped
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import Drive

ODD = 'x $(touch XD) `touch XD` "$HOME"; touch XD #'


def test_no_part_of_a_folder_s_name_is_run(cluster: Cluster, tmp_path: Path) -> None:
    made = Drive(tmp_path / ODD, {"ingest_extract": 1})
    try:
        made.start().finish()
    finally:
        made.stop()
    assert list(made.results()) == ["main/ingest_extract/00000.manifest.json"]
    assert not list(tmp_path.rglob("XD")) and not Path("XD").exists()


@pytest.mark.parametrize("words", ["a 'b' c", 'say "x"', 'back \\" slash', "$(x) `y` $HOME"])
def test_a_wrapped_command_stays_what_it_is(words: str, here: Callable[[str], list[str]]) -> None:
    escaped = words.replace('"', '\\"')  # as the executor does
    assert here(quote_wrapped(f'sbatch -D here --wrap="{escaped}"')) == ["-D", "here", f"--wrap={words}"]


def test_a_call_without_a_command_stays_what_it_is() -> None:
    assert quote_wrapped("sbatch -D here /dev/stdin") == "sbatch -D here /dev/stdin"


@pytest.fixture
def here() -> Callable[[str], list[str]]:
    """here(call): the arguments that a shell gives sbatch."""
    import subprocess

    def arguments(call: str) -> list[str]:
        line = f"sbatch() {{ printf '%s\\n' \"$@\"; }}; {call}"
        return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout.splitlines()

    return arguments
