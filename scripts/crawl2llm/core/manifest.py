"""Manifests: the small JSON file that ends every task, and the handle by which the next step finds its input."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from crawl2llm.core import manifest_ranges
from crawl2llm.core.errors import InputError

WRITTEN_KEYS = ("step", "fingerprint", "counts", "summary", "files", "inputs", "sources")
ALL = "*"  # in `inputs`: counts, summary and files of a manifest together
SUMMARY_PART = "summary:"  # in `inputs`: before the path of one part of a manifest's summary
FILE_NAMES = "files:"  # in `inputs`: the names of a manifest's files


class ManifestError(ValueError):
    """A manifest that is unreadable, or that does not agree with its files or its own counts."""


class NewerError(ManifestError):
    """A manifest that a newer version has written: whoever replaces it loses the newer result."""


def checksum(path: Path) -> str:
    """xxh3-128 of a file's bytes, in hex."""
    import xxhash  # only here: a GPU is checked without it

    state = xxhash.xxh3_128()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def sync_to_disk(path: Path) -> None:
    """Force a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, text: str, shared: bool = False) -> None:
    """Write `text` to `path` so that the file is there whole or not at all (temporary name, fsync, rename).

    The temporary name is always the same, so that what a killed run left is written over. shared: processes may write the file at the
    same time, as those of a cache; each then has a temporary name of its own.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial" if shared else f".{path.name}.partial")
    try:
        if partial.is_symlink():  # a file elsewhere would be written over
            partial.unlink()
        with partial.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder at `path`, gone afterwards; what a killed run left there is removed first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def canonical_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, so that the order of keys does not matter."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(text: str) -> str:
    """The first 16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def intern_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which equal texts are one text: a plan holds 40,000 manifests, which name each other's files and digests."""
    return {sys.intern(key): sys.intern(value) if type(value) is str else value for key, value in pairs}


def leaves_folder(folder: str, name: str) -> bool:
    """Whether a file of a folder is elsewhere, by a link: a folder may come from somebody else, and a task reads what it names."""
    home = os.path.realpath(folder)
    return not f"{os.path.realpath(os.path.join(home, name))}{os.sep}".startswith(f"{home}{os.sep}")  # noqa: PTH118 - as in `file_problems`


def links_out(manifest: Path) -> Iterator[Path]:
    """The symbolic links among a task's files that lead out of its folder, in folders of its own too; the manifest need not be there.

    A task would write through them to a file elsewhere, and no reader takes them (`Manifest.file_problems`). All files of the folder of a
    one-task step are its own, and elsewhere those below its name and those that begin with it. The tasks of shards, bands and parts share
    folders such as `spans/`: their files in these are looked at, and a link in place of such a folder is one of each of them.
    """
    home, task = str(manifest.parent), task_of(manifest)

    def task_in(name: str) -> str:
        return name.lstrip(".").partition(".")[0]

    queue = [home]
    while queue:
        with contextlib.suppress(FileNotFoundError):  # another task has removed what it needs no more
            for entry in os.scandir(queue.pop()):
                name = entry.path[len(home) + 1 :]
                last = task_in(entry.name)
                of_task = not task or task in (task_in(name.partition("/")[0]), last)
                of_all = task.isdigit() and not (last.isdigit() and len(last) == len(task))
                if entry.is_dir(follow_symlinks=False):
                    queue += [entry.path] if of_task or of_all else []
                elif (
                    entry.is_symlink()
                    and (of_task or (of_all and not os.path.isfile(entry.path)))  # noqa: PTH113 - as in `file_problems`
                    and leaves_folder(home, name)
                ):
                    yield Path(entry.path)


def task_of(path: Path) -> str:
    """`…/00017.manifest.json` → `00017`; "" for the manifest of a one-task step."""
    return path.name.removesuffix("manifest.json").rstrip(".")


def variant_of(path: Path) -> str:
    """`results/<variant>/<stage>/<step>/manifest.json` → `<variant>`."""
    return path.absolute().parents[2].name


def pretty_json(value: Any) -> str:
    """JSON as manifests and records are written: sorted, indented, the same every time."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def json_lines(rows: Iterable[Any]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@dataclass
class Manifest:
    """What one task did. `counts` holds `in`, `kept` and `dropped` (by reason), in documents or records.

    `files` maps a path relative to the manifest's folder to {bytes, xxh3}; `summary` holds what the report
    shows of this step. `inputs` is what the task consumed: for each manifest it read (`language.score 00003`), the parts
    that it used with a digest each; many of one step are a range (core/manifest_ranges.py). `sources` is a digest of the source
    files that it goes back to, by shard, or of all. Nothing here may depend on time, host or worker count; what does goes into `run`,
    which is written beside it.
    """

    step: str
    fingerprint: str
    counts: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    worked: bool = True  # False: the results were there (a training at its last step), the record beside it stays
    path: Path | None = None
    used: set[str] = field(default_factory=set)  # what was used of a manifest that was read as input

    @staticmethod
    def copy_of(path: Path) -> Path:
        """The path of the second copy of the manifest at `path`.

        Snakemake removes a task's manifest before it starts the task again; the copy stays, and tells whether all is done already.
        """
        return path.with_name(f".{path.name.removesuffix('.json')}.copy")

    @classmethod
    def remove_with_copy(cls, path: Path) -> None:
        """Remove a manifest with its copy: the task runs again, also with the same inputs."""
        cls.copy_of(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def count_all_kept(self, number: int) -> None:
        """Fill `counts` for a task that reads so many documents and drops none."""
        self.counts = {"in": number, "kept": number, "dropped": {}}

    @property
    def folder(self) -> Path:
        """The folder that the names in `files` are relative to."""
        if self.path is None:
            raise ManifestError("a manifest that was neither read nor written has no folder")
        return self.path.parent

    @property
    def key(self) -> str:
        """The task's name among the inputs of others: `language.score 00003`, or `language.select` for a lone task."""
        return f"{self.step} {task_of(self.path) if self.path else ''}".rstrip()

    def file(self, name: str, part: tuple[str, ...] = ()) -> Path:
        """The path of one of the task's files; ManifestError if the manifest does not list it.

        part: of the summary, the digest of all that the reader takes from the file. If it is there, the reader depends on it, and not on
        the rest of the file.
        """
        return self._listed_path(name, self.files)

    def subfolder(self, prefix: str) -> Path:
        """The folder of the files whose names begin with `prefix`: a reader of it depends on these, and on the names of all files."""
        return self.folder / prefix

    def _listed_path(self, name: str, files: dict[str, dict[str, Any]]) -> Path:
        if name not in files:
            raise ManifestError(f"{self.path}: no file {name!r} in this manifest; it lists {', '.join(files)}")
        assert self.path is not None
        return self.path.parent / name

    def verify_files(self, prefix: str) -> Manifest:
        """The manifest itself, once the files whose names begin with `prefix` have been read and have their checksums.

        For files whose format has none of its own, such as weights. Raises ManifestError that names a damaged one.
        """
        for fault in self.checksum_problems(prefix):
            raise ManifestError(f"{fault}: remove {self.path} and run again")
        return self

    def rows(self, name: str) -> list[Any]:
        """The rows of a file of JSON Lines, once it has its checksum. Raises ManifestError for one that is missing or damaged."""
        with self.verify_files(name).file(name).open(encoding="utf-8") as handle:
            return [json.loads(line) for line in handle]

    def checksum_problems(self, prefix: str = "") -> Iterator[str]:
        """A sentence on each file whose name begins with `prefix` and that has another checksum; each is read whole."""
        assert self.path is not None
        files = object.__getattribute__(self, "files")  # to compare them is not to consume them
        for name, facts in files.items():
            if name.startswith(prefix) and checksum(self.path.parent / name) != facts["xxh3"]:
                yield f"{self.path.parent / name} does not have the checksum that its manifest says"

    def summary_part(self, *path: str) -> Any:
        """One part of the summary, `part("by_shard", "00003")`: a reader that uses no more depends on no more."""
        value: Any = self.summary
        for name in path:
            value = value[name]
        return value

    def digest_of(self, part: str) -> str | None:
        """The digest of what another task consumed of this one (see `inputs`); None if it is not there."""
        if part == ALL:
            return digest(canonical_json([self.counts, self.summary, self.files]))
        if part == FILE_NAMES:
            return digest(canonical_json(sorted(self.files)))
        if part.startswith(SUMMARY_PART):
            try:
                return digest(canonical_json(self.summary_part(*part.removeprefix(SUMMARY_PART).split("/"))))
            except (KeyError, TypeError):
                return None
        return self.files.get(part, {}).get("xxh3")

    def file_problems(self, deep: bool = False, only: str | None = None) -> list[str]:
        """What is wrong with the task's files, a sentence each: by their sizes, and with `deep` by their checksums. only: of this one.

        A file that a link leads out of the folder to is no file of the task.
        """
        problems = []
        folder, elsewhere = str(self.folder), {"": False}  # below it → whether a link leads out of it
        files = object.__getattribute__(self, "files")
        for name in files if only is None else files.keys() & {only}:
            facts = files[name]
            file = f"{folder}/{name}"  # a plan over 1,000 shards asks for 8,000 files: a Path takes longer than the question
            try:
                about = os.lstat(file)
                parent = name.rpartition("/")[0]
                if parent not in elsewhere:
                    elsewhere[parent] = leaves_folder(folder, parent)
                if elsewhere[parent] or stat.S_ISLNK(about.st_mode):
                    if leaves_folder(folder, name):
                        problems.append(
                            f"{file} leads out of its folder by a symbolic link: put the file itself there, or link the whole folder"
                        )
                        continue
                    about = os.stat(file)  # noqa: PTH116
                size = about.st_size
            except OSError:
                problems.append(f"{file} is missing")
                continue
            if size != facts["bytes"]:
                problems.append(f"{file} has {size} bytes, not {facts['bytes']}")
        return problems or (list(self.checksum_problems()) if deep else [])

    def write(self, path: Path, files: Iterable[Path]) -> Manifest:
        """Check the counts, add `files` with sizes and checksums, and write the manifest as the task's last act.

        The files are on the disk before it: a manifest that survives a power cut without them would be believed.
        """
        counts = self.counts
        if "in" in counts and counts["in"] != counts["kept"] + sum(counts["dropped"].values()):
            raise ManifestError(f"{path}: in = kept + dropped does not hold: {counts}")
        self.files = {}
        for name in sorted(files):
            sync_to_disk(name)
            facts = {"bytes": name.stat().st_size, "xxh3": checksum(name)}
            self.files[str(name.relative_to(path.parent))] = facts
        for folder in {(path.parent / name).parent for name in self.files}:
            sync_to_disk(folder)
        self.path = path
        self._write()
        return self

    def _write(self) -> None:
        assert self.path is not None
        text = pretty_json({key: getattr(self, key) for key in WRITTEN_KEYS})
        write_atomically(self.copy_of(self.path), text)
        write_atomically(self.path, text)

    def update_fingerprint(self, fingerprint: str, sources: dict[str, str]) -> None:
        """Write the manifest again if it is not there, or names another fingerprint or other source files."""
        assert self.path is not None
        if (fingerprint, sources) != (self.fingerprint, self.sources) or not self.path.exists():
            self.fingerprint, self.sources = fingerprint, sources
            self._write()

    def accept_fingerprint(self, fingerprint: str) -> None:
        """Write the manifest again under another fingerprint (commands/accept.py)."""
        self.fingerprint = fingerprint
        self._write()

    @classmethod
    def of_task(cls, path: Path) -> Manifest:
        """A task's manifest, or its copy where it was removed. Raises ManifestError if neither is readable or a file is missing."""
        manifest = cls.read_unchecked(path if path.exists() else cls.copy_of(path))
        manifest.path = path
        for fault in manifest.file_problems():
            raise ManifestError(fault)
        return manifest

    @classmethod
    def read_unchecked(cls, path: Path) -> Self:
        """A manifest, without a check of its files. Raises ManifestError for one that is not readable."""
        try:
            body = json.loads(path.read_bytes(), object_pairs_hook=intern_pairs)
            unknown = set(body) - set(WRITTEN_KEYS)
            if unknown and isinstance(body, dict) and {"step", "fingerprint", "files"} <= body.keys():
                raise NewerError(
                    f"{path}: a newer version of crawl2llm wrote it (this one does not know its keys {', '.join(sorted(unknown))}): update "
                    "this one (`git pull && make install`), or start in another folder (--directory DIR)"
                )
            if unknown:
                raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
            manifest = cls(**body, path=path)
            if not all(isinstance(facts["bytes"], int) and facts["xxh3"] for facts in manifest.files.values()):
                raise ValueError("a file without size and checksum")
            if outside := [name for name in manifest.files if name[0] == "/" or ".." in name.split("/")]:
                raise ValueError(f"it lists {outside[0]!r}, which is not in its folder")
            manifest_ranges.check_ranges(manifest.inputs)
        except NewerError:
            raise
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise ManifestError(f"{path}: not a readable manifest: {error}") from error
        return manifest

    @classmethod
    def read_of_step(cls, step: str, path: Path, option: str, is_input: bool = True) -> Manifest:
        """As `read`, of the manifest that an option of a program names; as `read_unchecked` where it is no input of this task.

        Raises InputError if it is one of another step.
        """
        if (manifest := (cls.read if is_input else cls.read_unchecked)(path)).step != step:
            raise InputError(f"{option} {path} is a manifest of {manifest.step!r}; it must be one of {step!r}")
        return manifest

    @classmethod
    def read(cls, path: Path | str, only: str | None = None) -> Manifest:
        """Read a manifest as input, and check that its files are there with the sizes it says.

        only: the file that the reader is after. A one-task step lists one for each of thousands of shards, each of which has a reader.
        """
        manifest = _Input.read_unchecked(Path(path))
        for fault in manifest.file_problems(only=only):
            raise ManifestError(
                f"{fault}; its manifest {manifest.path} is out of date: start the run again, and this task runs again"
            )
        manifest.used = set()  # the checks above do not count
        for recorded in _recordings:
            manifest.used = recorded.setdefault(manifest.key, manifest).used
        return manifest


class _NotingDict(dict[str, Any]):
    """A dictionary that notes what is read of it: a key, its keys, or all of it, which is whatever is not named here."""

    def __init__(
        self, values: dict[str, Any], key: Callable[[str], None], keys: Callable[[], None], whole: Callable[[], None]
    ) -> None:
        super().__init__(values)
        self._key, self._keys, self._whole = key, keys, whole

    def __contains__(self, key: object) -> bool:
        if present := super().__contains__(key):
            self._key(str(key))
        else:
            self._whole()
        return present

    def __getitem__(self, key: str) -> Any:
        self.__contains__(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.__contains__(key)
        return super().get(key, default)

    def __reduce_ex__(self, _: Any) -> Any:
        """Copies, also those for other processes, are dictionaries that note nothing."""
        self._whole()
        return dict, (dict(dict.items(self)),)


def _note_key(used: set[str], key: str) -> None:
    """Note a key at the top of a summary; one that looks like a path of parts stands for all."""
    used.add(ALL if "/" in key else SUMMARY_PART + key)


def _noting_method(method: str, note_name: str) -> Callable[..., Any]:
    """A method of a dictionary that notes a use first."""
    inherited = getattr(dict, method)

    def note_and_call(self: _NotingDict, *args: Any, **kwargs: Any) -> Any:
        getattr(self, note_name)()
        return inherited(self, *args, **kwargs)

    return note_and_call


for _name in ("__iter__", "__len__", "__reversed__", "keys"):
    setattr(_NotingDict, _name, _noting_method(_name, "_keys"))
for _name in (
    "__eq__",
    "__ne__",
    "__or__",
    "__ror__",
    "__repr__",
    "values",
    "items",
    "copy",
    "pop",
    "popitem",
    "setdefault",
):
    setattr(_NotingDict, _name, _noting_method(_name, "_whole"))


class _Input(Manifest):
    """A manifest that was read as input; it notes what is used of it, for the `inputs` of the task that reads it.

    Of the summary a key at its top, of the files their names and each file; the counts, and whatever else is asked, are a use of all of it.
    """

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name not in ("counts", "summary", "files", "folder") or "used" not in object.__getattribute__(
            self, "__dict__"
        ):
            return value
        used = self.used
        if name == "summary" and value:
            return _NotingDict(value, partial(_note_key, used), lambda: used.add(ALL), lambda: used.add(ALL))
        if name == "files" and value:
            return _NotingDict(value, used.add, lambda: used.add(FILE_NAMES), lambda: used.add(ALL))
        used.add(ALL)
        return value

    def file(self, name: str, part: tuple[str, ...] = ()) -> Path:
        value: Any = object.__getattribute__(self, "summary")
        for key in part:
            value = value.get(key) if isinstance(value, dict) else None
        self.used.add(SUMMARY_PART + "/".join(part) if part and value is not None else name)
        return self._listed_path(name, object.__getattribute__(self, "files"))

    def subfolder(self, prefix: str) -> Path:
        files = object.__getattribute__(self, "files")
        self.used.update([FILE_NAMES, *(name for name in files if name.startswith(prefix))])
        assert self.path is not None
        return self.path.parent / prefix

    def summary_part(self, *path: str) -> Any:
        self.used.add(SUMMARY_PART + "/".join(path))
        value: Any = object.__getattribute__(self, "summary")
        for name in path:
            value = value[name]
        return value


_recordings: list[dict[str, _Input]] = []


@contextmanager
def record_inputs() -> Iterator[dict[str, _Input]]:
    """Collects every manifest that is read inside, by its key."""
    manifests: dict[str, _Input] = {}
    _recordings.append(manifests)
    try:
        yield manifests
    finally:
        _recordings.remove(manifests)


def consumed_inputs(manifests: dict[str, _Input], keys: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """`inputs` of the task that read these manifests: the parts it used, with their digests, as ranges where they are many.

    Those that it was given and did not read have no parts: with others it might have read them.
    """
    out: dict[str, dict[str, str]] = {key: {} for key in keys}
    for key, manifest in sorted(manifests.items()):
        parts = [ALL] if ALL in manifest.used or not manifest.used else sorted(manifest.used)
        out[key] = {part: mark for part in parts if (mark := manifest.digest_of(part))}
        if missing := set(parts) - set(out[key]):
            raise ManifestError(f"{manifest.path} has no {', '.join(sorted(missing))}, which the task says it used")
    return manifest_ranges.pack_ranges(out)


def combine_sources(parts: Iterable[dict[str, str]]) -> dict[str, str]:
    """The `sources` of a task from those of what it read: one shard's, or all of them as one digest.

    A task reads its own shard, or all shards, or what was made from all.
    """
    whole: set[str] = set()
    shards: dict[str, str] = {}
    for part in parts:
        whole |= {part["all"]} if "all" in part else set()
        shards.update({shard: mark for shard, mark in part.items() if shard != "all"})
    if whole:
        return {"all": min(whole) if len(whole) == 1 else digest(canonical_json(sorted(whole)))}
    return shards if len(shards) < 2 else {"all": digest(canonical_json(shards))}
