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
READ_WHOLE = 32 * 2**20  # bytes up to which a compressed file is read whole
FOLDERS = {"data_dir", "dataset_path"}  # keys of an evaluation task that may name a folder
BLOCK, BLOCKS = 2**16, 64
_digest_cache = Cache(CACHE)


def hash_file(path: Path) -> str:
    """The digest of a file's bytes, read now, in hex. Raises OSError if it cannot be read."""
    state = xxhash.xxh3_64()
    with path.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        if size <= READ_WHOLE or path.suffix.lower() not in COMPRESSED:
            while block := handle.read(1 << 20):
                state.update(block)
            return f"{size:x}-{state.hexdigest()}"
        for number in range(BLOCKS):
            handle.seek((size - BLOCK) * number // (BLOCKS - 1))
            state.update(handle.read(BLOCK))
    return f"{size:x}~{state.hexdigest()}"


def cached_hash(path: Path | str) -> str:
    """The digest of a file's bytes, from the cache where size, times and inode are as they were. Raises OSError."""
    digests, name = _digest_cache.values, os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - a plan asks of 90,000 files
    facts = os.stat(path)  # noqa: PTH116
    mark = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
    if name not in digests or digests[name][:-1] != mark:
        _digest_cache.keep_value(name, [*mark, hash_file(Path(path))])
    return str(digests[name][-1])


def save_cache() -> None:
    """Keep what was found for the next plan in this folder; it is read again where it is asked for."""
    _digest_cache.save_and_forget()


def files_below(path: Path) -> list[Path]:
    """A file, or every file in a folder, at any depth, through links too (each folder once), sorted."""
    if not path.is_dir():
        return [path]
    seen, paths = set[str](), []
    for folder, folders, files in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        paths += [Path(folder, name) for name in files]
    return sorted(paths)


def manifests_in(folder: Path) -> list[Path]:
    """The manifests in a folder, sorted. Raises FileNotFoundError if there is none."""
    paths = sorted(folder.glob("*.manifest.json"))
    if not paths:
        raise FileNotFoundError(2, "no manifests in it, or no such folder", str(folder))
    return paths


def imported_files(path: Path) -> list[Path]:
    """A Python file and what it imports of the files beside it, at any depth, sorted: of a package, every module.

    Raises OSError if a file cannot be read.
    """
    modules, queue = set[Path](), [path]
    while queue:
        file = queue.pop()
        modules.add(file)
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (ValueError, SyntaxError):  # the program that runs it says what is wrong
            continue
        names = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
        for name in {name.partition(".")[0] for name in names} - {""}:
            # A package's import from here, too.
            candidates = [path.parent / f"{name}.py", *(path.parent / name).rglob("*.py")]
            queue += [candidate for candidate in candidates if candidate not in modules and candidate.is_file()]
    return sorted(modules)


def files_named_by(path: Path) -> list[Path]:
    """A YAML file and the files that it names, at any depth: an evaluation task, its data, what it includes.

    A scalar counts that is the path of a file, or a pattern of such, relative to the YAML file or to the working directory, and
    the folder behind a key of FOLDERS; `!function module.name` counts as module.py beside it, with all modules there. The value
    of `include` is read as YAML with any suffix. Sorted, each once.
    """
    files: set[Path] = set()
    queue = [(path, True)]
    scanned: set[Path] = set()
    while queue:
        file, is_yaml = queue.pop()
        files.add(file)
        if (is_yaml or file.suffix in {".yaml", ".yml"}) and file not in scanned:
            scanned.add(file)
            queue += _files_of_scalars(file)
    return sorted(files)


def _files_of_scalars(path: Path) -> list[tuple[Path, bool]]:
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
            paths = next(
                filter(None, (_matching_files(folder, text, key in FOLDERS) for folder in (path.parent, Path()))), []
            )
            modules = [other for file in paths for other in sorted(file.parent.glob("*.py"))] if function else []
            out += [(file, key == "include") for file in [*paths, *modules]]
        function, key = False, text
    return out


def _matching_files(base: Path, text: str, in_folder: bool) -> list[Path]:
    """The files below `base` that `text` names, as a path or a pattern; all those in the folder `text` where `in_folder`."""
    if in_folder and (base / text).is_dir():
        return [file for file in sorted((base / text).rglob("*")) if file.is_file()]
    if not glob.has_magic(text):
        return [base / text] if (base / text).is_file() else []
    names = glob.glob(os.path.join(glob.escape(str(base)), text), recursive=True)  # noqa: PTH118 - glob takes text
    return [Path(name) for name in sorted(names) if Path(name).is_file()]
