"""The environments of the rules and the lock name the same versions."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from crawl2llm.stages.ingest.compiled import NAMES, SELECTOLAX

ENVS = Path(__file__).resolve().parents[2] / "envs"


def pins(lines: list[str]) -> dict[str, str]:
    return dict(line.strip().lower().split("==") for line in lines if "==" in line and not line.startswith("#"))


LOCK = pins((ENVS / "lock.txt").read_text().splitlines())


@pytest.mark.parametrize("path", sorted(ENVS.glob("*.yaml")), ids=lambda path: path.stem)
def test_environment_equals_lock(path: Path) -> None:
    parts = yaml.safe_load(path.read_text())["dependencies"]
    packages = next(part["pip"] for part in parts if isinstance(part, dict))
    assert all("==" in name or "file://${CRAWL2LLM}/" in name for name in packages)
    assert {name: LOCK.get(name) for name in pins(packages)} == pins(packages)


def test_conda_builds_the_compiled_part_again_where_its_source_is_another_one() -> None:
    native = ENVS.parent / "scripts/crawl2llm/stages/ingest/native"
    sources = [sha256((native / name).read_bytes()).digest() for name in NAMES]
    mark = sha256(b"".join(sources)).hexdigest()[:8]
    assert f"# source {mark}:" in (ENVS / "data.yaml").read_text(), f"write {mark} there"


def test_the_compiled_part_reads_the_trees_of_the_version_that_is_locked() -> None:
    assert LOCK["selectolax"] == SELECTOLAX


def test_lock_is_installed() -> None:
    """What runs here is what the lock says."""
    from importlib.metadata import version

    wrong = {name: version(name) for name in LOCK if version(name).split("+")[0] != LOCK[name]}
    assert wrong == {}


def test_the_structs_are_those_of_the_selectolax_that_is_pinned() -> None:
    assert LOCK["selectolax"] == SELECTOLAX


def test_nothing_is_pinned_twice() -> None:
    dev = pins((ENVS / "lock-dev.txt").read_text().splitlines())
    assert not dev.keys() & LOCK.keys()


VARIANTS = ("avx2", "arch_x86_64_v4")


def wide_registers(library: Path) -> int:
    """How many instructions of a library use AVX registers, which the baseline of x86-64 lacks.

    Those of a function that the library chooses when it is loaded, by the processor, do not count.
    """
    text = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    found = 0
    for function in re.split(r"^(?=[0-9a-f]+ <)", text, flags=re.MULTILINE):
        name, _, variant = function.partition(">:")[0].partition("<")[2].partition(".")
        if variant not in VARIANTS or f"<{name}.resolver>:" not in text or f"<{name}.default>:" not in text:
            found += len(re.findall(r"%[yz]mm\d", function))
    return found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX is of x86-64")
@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump (binutils)")
def test_what_is_compiled_runs_on_every_cpu(tmp_path: Path) -> None:
    """A login node's -march=native would be an illegal instruction, or another last digit, on another node."""
    for name in ("fasttext_pybind", "crawl2llm_native"):
        spec = find_spec(name)
        assert spec is not None and spec.origin
        assert wide_registers(Path(spec.origin)) == 0
    source = tmp_path / "wide.c"
    source.write_text("void add(float *a) { for (int i = 0; i < 1024; i++) a[i] += a[i]; }")
    compile_ = ["gcc", "-O3", "-mavx2", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "wide.so")]
    subprocess.run(compile_, check=True)
    assert wide_registers(tmp_path / "wide.so") > 0, "the test would see AVX"
    source.write_text(f'__attribute__((target_clones("avx2", "default"))) {source.read_text()}')
    compile_.remove("-mavx2")
    subprocess.run(compile_, check=True)
    assert wide_registers(tmp_path / "wide.so") == 0, "AVX2 is for processors that have it"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is of x86-64")
@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump (binutils)")
def test_fasttext_is_optimized() -> None:
    """Without -O2 every function keeps a frame pointer, and training takes four times as long."""
    spec = find_spec("fasttext_pybind")
    assert spec is not None and spec.origin
    text = subprocess.run(["objdump", "-d", spec.origin], capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"mov +%rsp,%rbp", text)) < 0.001 * text.count("\n")


def test_install_leaves_the_callers_compiler_flags_out() -> None:
    """What `make install` would run, given a caller's -march=native."""
    if not shutil.which("make"):
        pytest.skip("no make")
    command = ["make", "--dry-run", "--always-make", "install", "CFLAGS=-march=native"]
    shown = subprocess.run(command, cwd=ENVS.parent, capture_output=True, text=True, check=True).stdout
    compiled = ("-r envs/lock.txt", "./scripts/crawl2llm/stages/ingest/native")
    lines = [line.strip() for line in shown.splitlines() if "pip install" in line and line.strip().endswith(compiled)]
    assert len(lines) == 2 and all(line.startswith("CFLAGS=-O2 CXXFLAGS=-O2 CPPFLAGS= ") for line in lines)
