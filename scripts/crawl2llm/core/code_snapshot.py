"""A run works to its end with the code and the config that it was started with: a copy of both, taken at its start.

`.snakemake/frozen/<digest>/` of the run's folder holds the workflow's own files; beside it lie the complete config and the source
files of every shard. Every job works from there, one that SLURM queues again too. The next start takes the edited files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crawl2llm.core.manifest import canonical_json, digest, write_atomically
from crawl2llm.core.root import CODE_FOLDER

FOLDER = Path(".snakemake/frozen")
COPIED_PARTS = ("Snakefile", "rules", "scripts", "envs", "config.yaml")  # what jobs and programs read
NATIVE = "crawl2llm_native"
HOME = "home"  # in a copy: a file that says where it was copied from


def workflow_files(root: Path) -> list[Path]:
    """The files of the workflow below `root`, sorted; what Python compiled, and pip noted, is not among them."""
    paths = []
    for part in COPIED_PARTS:
        for path in [root / part, *(root / part).rglob("*")]:
            if path.is_file() and "__pycache__" not in path.parts and path.parent.suffix != ".egg-info":
                paths.append(path)
    return sorted(paths)


def project_folder(root: Path) -> Path:
    """The project's folder, where `root` may be a frozen copy of it."""
    try:
        return Path((root / HOME).read_text(encoding="utf-8"))
    except OSError:
        return root


def compiled_module(root: Path) -> Path | None:
    """The compiled part that goes with the source (stages/ingest/compiled.py): in a frozen copy, or as it is installed.

    A new build meanwhile changes nothing for the jobs of a run.
    """
    in_copy = next((root / CODE_FOLDER).glob(f"{NATIVE}.*"), None)
    spec = None if in_copy else find_spec(NATIVE)
    return in_copy or (Path(spec.origin) if spec and spec.origin else None)


def remove(path: Path) -> None:
    """Remove a folder, a file or a link, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_copy(folder: Path, contents: dict[Path, bytes]) -> bool:
    """Whether the folder holds these files, by name with their bytes, and nothing else that could be run.

    A run's folder may come from somebody else, and the name of a folder in it proves nothing. What Python compiled goes first: it
    would be run in place of the source.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    for cached in list(folder.rglob("__pycache__")):
        remove(cached)
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {path.relative_to(folder) for path in paths} == contents.keys() and all(
        path.is_file() and not path.is_symlink() and path.read_bytes() == contents[path.relative_to(folder)]
        for path in paths
    )


def copy_code(
    root: Path, with_compiled: bool = True, plugin_files: Mapping[Path, bytes] = MappingProxyType({})
) -> Path:
    """Copy the workflow's files below `root` for a run; returns the copy, which is there whole or not at all.

    with_compiled: whether this environment runs the jobs too. An image or a conda environment has a compiled part of its own.
    plugin_files: the files of filters outside the project (chain/plugins.py), by their path in the copy.
    """
    contents = {path.relative_to(root): path.read_bytes() for path in workflow_files(root)} | dict(plugin_files)
    if with_compiled and (built := compiled_module(root)):
        contents[Path(CODE_FOLDER, built.name)] = built.read_bytes()
    contents[Path(HOME)] = str(project_folder(root)).encode()
    mark = digest("".join(f"{name} {digest(body.hex())}" for name, body in contents.items()))
    folder = FOLDER.absolute() / mark
    if not is_copy(folder, contents):
        remove(folder)
        partial = folder.with_name(f".{mark}.{os.getpid()}.partial")
        for name, body in contents.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(body)
        try:
            partial.rename(folder)
        except OSError:  # another start was faster
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def config_path(complete: dict[str, Any], sources: list[Any]) -> Path:
    """Where `write_config` writes, relative to the run's folder."""
    return FOLDER / f"{digest(canonical_json([complete, sources]))}.json"


def sources_path(config: Path) -> Path:
    """The file of the sources beside a frozen config."""
    return config.with_suffix(".sources")


def write_config(complete: dict[str, Any], sources: list[Any]) -> Path:
    """Write the complete config for a run's jobs, and beside it the source files of every shard; returns its path."""
    frozen = config_path(complete, sources).absolute()
    write_atomically(sources_path(frozen), json.dumps(sources))
    write_atomically(
        frozen, json.dumps(complete, indent=1)
    )  # not sorted: the order of the models is that of the report
    return frozen


def read_sources(path: Path) -> list[Any]:
    """What `write_config` was given as `sources`, from the file beside it. Raises OSError if there is none."""
    return list(json.loads(path.read_text(encoding="utf-8")))


def forget_others(*current: Path) -> None:
    """Remove what earlier runs froze. To be called with the run's lock held, when none of their jobs is left."""
    names = {path.stem for path in current}
    for path in FOLDER.iterdir() if FOLDER.is_dir() else ():
        if path.stem in names:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
