"""Which modules the demo's crawl documents, and the processes that render them.

A module is never imported here: packages are walked by the names of their files. Rendering runs in `crawl2llm.stages.crawl.document`, one
fresh process for each batch, without input, display or network settings, in an empty folder of its own. Batches are static, so that the
number of processes changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.root import CODE, ROOT
from crawl2llm.stages.crawl import document

# Importing these opens a browser or a window, prints, or starts something; or they hold tests, demos or another's copy of a package.
BLOCKED_NAMES = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3", "pydoc_data", "conftest", "setup"}
BLOCKED_NAMES |= {"test", "tests", "testing", "externals", "extern", "vendor", "vendored", "thirdparty", "third_party"}
BATCH = 80  # modules of the standard library that share a process
OUTCOMES = ("import_failed", "render_failed", "page_too_large", "crashed", "timed_out")


@dataclass(frozen=True)
class Batch:
    """Modules that one process renders. documented: every module of the package, for links and for who documents what."""

    package: str
    modules: tuple[str, ...]
    documented: tuple[str, ...]


def is_public(name: str) -> bool:
    """Whether a module's own name is public and harmless."""
    return (
        not (name.startswith(("_", "test_")) or name.endswith("_test") or name in BLOCKED_NAMES) and name.isidentifier()
    )


def walk_modules(name: str, folders: Iterable[str] | None) -> Iterator[str]:
    """A module and, by their files, the public modules below it, in alphabetical order."""
    yield name
    seen = set()
    for folder in folders or []:
        for module_info in sorted(pkgutil.iter_modules([folder]), key=lambda info: info.name):
            if is_public(module_info.name) and module_info.name not in seen:
                seen.add(module_info.name)
                below = [str(Path(folder) / module_info.name)] if module_info.ispkg else None
                yield from walk_modules(f"{name}.{module_info.name}", below)


def package_modules(name: str) -> list[str]:
    """The public modules of a top-level package, itself first; empty if it is not installed."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    return [] if spec is None else list(walk_modules(name, spec.submodule_search_locations))


def standard_library() -> list[str]:
    """The public modules of the running Python's standard library."""
    return [module for name in sorted(sys.stdlib_module_names) if is_public(name) for module in package_modules(name)]


def module_batches(standard: bool, packages: Iterable[str], limit: int) -> tuple[list[Batch], int, list[str]]:
    """(batches, modules left out by `limit` modules a package, packages that are not installed)."""
    batches: list[Batch] = []
    left_out, absent = 0, []
    if standard:
        modules = tuple(standard_library())
        starts = range(0, len(modules), BATCH)
        batches += [Batch("python", modules[start : start + BATCH], modules) for start in starts]
    for name in packages:
        modules = tuple(package_modules(name))
        if not modules:
            absent.append(name)
            continue
        left_out += max(0, len(modules) - limit)
        batches.append(Batch(name, modules[:limit], modules[:limit]))
    return batches, left_out, absent


def process_environment(home: Path) -> dict[str, str]:
    """The environment of a rendering process: the same everywhere, and nothing of the user's."""
    return {
        "PATH": os.defpath,
        "PYTHONPATH": str(CODE),
        "PYTHONHASHSEED": "0",
        "PYTHONIOENCODING": "utf-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        "XDG_CACHE_HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "BROWSER": "true",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "80",
        "SOURCE_DATE_EPOCH": "1768478400",
    }


def path_replacements(home: Path) -> list[list[str]]:
    """(folder of this installation, what a page shows instead), the longest first."""
    known = {str(home): "/home/demo", sys.prefix: "/usr", sys.base_prefix: "/usr"}
    known |= {str(folder): "/srv/demo" for folder in (ROOT, CODE)}  # CODE is PYTHONPATH, which pages show
    known |= {path: "/usr/lib/python" for path in sysconfig.get_paths().values() if "python" in Path(path).name}
    known |= {sysconfig.get_path(name): "/usr/lib/site-packages" for name in ("purelib", "platlib")}
    return [[old, known[old]] for old in sorted(known, key=lambda old: (-len(old), old))]


def _read_progress(out: Path) -> tuple[int, str | None]:
    """(modules finished, module under way when the process ended), after cutting a half-written last line."""
    text = out.read_bytes() if out.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        out.write_bytes(whole)
    rows = [json.loads(line) for line in whole.splitlines()]
    under_way = rows[-1].get("begin") if rows else None
    return sum("module" in row for row in rows), under_way


def _run_process(job: Path, out: Path, home: Path, seconds: float) -> str | None:
    """Run one rendering process to its end; `timed_out` if nothing was written for `seconds`, else None."""
    command = [sys.executable, "-P", "-W", "ignore", "-m", document.__name__, str(job), str(out)]
    with (home / "stderr").open("wb") as errors:
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=home,
            env=process_environment(home),
            start_new_session=True,
        )
        size, late = -1, False
        while not late:
            try:
                running.wait(timeout=seconds)
                break
            except subprocess.TimeoutExpired:
                now = out.stat().st_size if out.exists() else 0
                size, late = now, now == size
        # Processes that a module has started end with its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    return "timed_out" if late else None


def render_batch(batch: Batch, folder: Path, max_bytes: int, seconds: float) -> Path:
    """Render a batch into a JSON Lines file; after a crash or a hang, continue after the module that caused it.

    Raises InputError if the process cannot even start.
    """
    home = folder / "home"
    home.mkdir(parents=True)
    job, out, left = folder / "job.json", folder / "out.jsonl", list(batch.modules)
    while left:
        body: dict[str, Any] = {"modules": left, "documented": batch.documented, "max_bytes": max_bytes}
        job.write_text(json.dumps(body | {"replace": path_replacements(home)}), encoding="utf-8")
        before = len(batch.modules) - len(left)
        reason = _run_process(job, out, home, seconds)
        done, culprit = _read_progress(out)
        if culprit is not None:
            with out.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps({"module": culprit, "error": reason or "crashed", "detail": ""}) + "\n")
            done += 1
        if done == before:
            errors = (home / "stderr").read_text(encoding="utf-8", errors="replace").strip()[-500:]
            raise InputError(f"crawl.render: the process that renders {batch.package} did not start: {errors}")
        left = list(batch.modules[done:])
    return out


def render_modules(
    batches: list[Batch], max_bytes: int, seconds: float, workers: int
) -> Iterator[tuple[Batch, dict[str, Any]]]:
    """(batch, {module, html, summary} or {module, error, detail}) of every module, in order, for any `workers`."""
    with TemporaryDirectory(prefix="crawl-render-") as scratch, ThreadPoolExecutor(workers) as pool:
        waiting = [
            pool.submit(render_batch, batch, Path(scratch) / str(number), max_bytes, seconds)
            for number, batch in enumerate(batches)
        ]
        try:
            for batch, future in zip(batches, waiting, strict=True):
                path = future.result()
                with path.open(encoding="utf-8") as lines:
                    for line in lines:
                        row = json.loads(line)
                        if "module" in row:
                            yield batch, row
                path.unlink()
        finally:
            for future in waiting:
                future.cancel()
