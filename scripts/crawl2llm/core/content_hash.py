"""What a file holds, as a short digest: the identity of input that the project did not write itself.

A file is read whole, except a large compressed one: of that, its size and 64 blocks spread evenly over it are taken, since a
plan over a Common Crawl dump cannot read it, and an edit of a compressed file moves what follows it. Bytes that are written over in
place, as many as before and between the blocks, are not seen: give such a file another name. Digests are kept in a cache by path, size,
times and inode, so that a plan over the same files reads nothing.
"""

from __future__ import annotations

import ast
import glob
import os
from pathlib import Path

import xxhash
import yaml

from crawl2llm.core.plan_cache import Cache

CACHE = Path(".snakemake/contents.json")  # path → [size, times, inode, digest]
COMPRESSED = {".gz", ".zst", ".lz4", ".bz2", ".xz", ".parquet", ".zip"}
WHOLE = 32 * 2**20  # bytes up to which a compressed file is read whole
FOLDERS = {"data_dir", "dataset_path"}  # keys of an evaluation task that may name a folder
BLOCK, BLOCKS = 2**16, 64
_known = Cache(CACHE)


def read(path: Path) -> str:
    """The digest of a file's bytes, read now, in hex. Raises OSError where it cannot be read."""
    state = xxhash.xxh3_64()
    with path.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        if size <= WHOLE or path.suffix.lower() not in COMPRESSED:
            while block := handle.read(1 << 20):
                state.update(block)
            return f"{size:x}-{state.hexdigest()}"
        for number in range(BLOCKS):
            handle.seek((size - BLOCK) * number // (BLOCKS - 1))
            state.update(handle.read(BLOCK))
    return f"{size:x}~{state.hexdigest()}"


def content(path: Path | str) -> str:
    """The digest of a file's bytes, from the cache where size, times and inode are as they were. Raises OSError."""
    known, name = _known.held, os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - a plan asks of 90,000 files
    facts = os.stat(path)  # noqa: PTH116
    mark = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
    if name not in known or known[name][:-1] != mark:
        _known.keep(name, [*mark, read(Path(path))])
    return str(known[name][-1])


def save() -> None:
    """Keep what was found for the next plan in this folder; it is read again where it is asked for."""
    _known.forget()


def below(path: Path) -> list[Path]:
    """A file, or every file in a folder, at any depth, through links too (each folder once), sorted."""
    if not path.is_dir():
        return [path]
    seen, found = set[str](), []
    for folder, folders, files in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        found += [Path(folder, name) for name in files]
    return sorted(found)


def manifests(folder: Path) -> list[Path]:
    """The manifests in a folder, sorted. Raises FileNotFoundError where there is none."""
    found = sorted(folder.glob("*.manifest.json"))
    if not found:
        raise FileNotFoundError(2, "no manifests in it, or no such folder", str(folder))
    return found


def imported(path: Path) -> list[Path]:
    """A Python file and what it imports of the files beside it, at any depth, sorted: of a package, every module.

    Raises OSError where a file cannot be read.
    """
    found, queue = set[Path](), [path]
    while queue:
        file = queue.pop()
        found.add(file)
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (ValueError, SyntaxError):  # the program that runs it says what is wrong
            continue
        names = [
            name
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        ]
        for name in {name.partition(".")[0] for name in names} - {""}:
            beside = [
                path.parent / f"{name}.py",
                *(path.parent / name).rglob("*.py"),
            ]  # a package's import from here, too
            queue += [one for one in beside if one not in found and one.is_file()]
    return sorted(found)


def named_by(path: Path) -> list[Path]:
    """A YAML file and the files that it names, at any depth: an evaluation task, its data, what it includes.

    A scalar counts that is the path of a file, or a pattern of such, relative to the YAML file or to the working directory, and
    the folder behind a key of FOLDERS; `!function module.name` counts as module.py beside it, with all modules there. The value
    of `include` is read as YAML with any suffix. Sorted, each once.
    """
    found: set[Path] = set()
    queue = [(path, True)]
    read: set[Path] = set()
    while queue:
        file, is_yaml = queue.pop()
        found.add(file)
        if (is_yaml or file.suffix in {".yaml", ".yml"}) and file not in read:
            read.add(file)
            queue += _scalars(file)
    return sorted(found)


def _scalars(path: Path) -> list[tuple[Path, bool]]:
    """The files that a YAML file names, and whether each is to be read as YAML with any suffix."""
    out: list[tuple[Path, bool]] = []
    try:
        tokens = [
            t for t in yaml.scan(path.read_text(encoding="utf-8")) if isinstance(t, yaml.ScalarToken | yaml.TagToken)
        ]
    except (OSError, UnicodeError, yaml.YAMLError):
        return out  # the program that reads it says what is wrong
    function, key = False, ""
    for token in tokens:
        if isinstance(token, yaml.TagToken):
            function = token.value[1] == "function"
            continue
        text = token.value.rpartition(".")[0].replace(".", "/") + ".py" if function else token.value
        if 0 < len(text) < 1000 and "\n" not in text:
            named = next(filter(None, (_found(folder, text, key in FOLDERS) for folder in (path.parent, Path()))), [])
            beside = [other for file in named for other in sorted(file.parent.glob("*.py"))] if function else []
            out += [(file, key == "include") for file in [*named, *beside]]
        function, key = False, text
    return out


def _found(base: Path, text: str, below: bool) -> list[Path]:
    """The files below `base` that `text` names, as a path or a pattern; all those in the folder `text` where `below`."""
    if below and (base / text).is_dir():
        return [file for file in sorted((base / text).rglob("*")) if file.is_file()]
    if not glob.has_magic(text):
        return [base / text] if (base / text).is_file() else []
    names = glob.glob(os.path.join(glob.escape(str(base)), text), recursive=True)  # noqa: PTH118 - glob takes text
    return [Path(name) for name in sorted(names) if Path(name).is_file()]
