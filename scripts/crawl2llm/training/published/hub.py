"""Fetches models and tokenizers of the Hugging Face hub, for `crawl2llm fetch-model`; a run uses them without a network.

A folder is there whole or not at all: files arrive in `<folder>.part`, where the next attempt goes on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.checks import check_published
from crawl2llm.training.published.hub_folders import MODELS, cache_folder, check_name
from crawl2llm.training.published.model_files import INCOMPLETE, PAPERS

TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name


@dataclass(frozen=True)
class Selection:
    """What is fetched of a name on the hub: no pickles, no code. check: raises InputError for a folder that is not what it has to be, in a
    line that begins with the given words. needed: patterns of which a file has to be there.
    """

    noun: str
    parent: Path
    patterns: tuple[str, ...]
    needed: tuple[str, ...]
    check: Callable[[Path, str], None]


MODEL = Selection(
    "safetensors",
    MODELS,
    ("*.safetensors", "*.json", "tokenizer.model", "merges.txt", "*.jinja", *PAPERS),
    ("*.safetensors",),
    check_published,
)


def fetch_model(name: str, revision: str, to: Path | None = None, selection: Selection = MODEL) -> Path:
    """The folder of a model, or of what else `selection` says, at a commit, fetched unless it is there; `to` in place of the cache's. One
    whose name does not tell the commit is compared with the hub.

    The token of gated models is that of the environment variable HF_TOKEN alone. Raises InputError for a model that cannot be had, in one
    line, and for one that is not as it has to be.
    """
    check_name(name, revision)
    folder = to or cache_folder(name, revision, selection.parent)
    if folder.exists() and folder.name == cache_folder(name, revision).name:
        selection.check(folder, name)
        return folder
    # Imported here: whoever asks for a folder needs no network.
    import httpx2
    from huggingface_hub import errors

    partial = folder.with_name(f"{folder.name}.part")
    token = os.environ.get(TOKEN) or False
    try:
        entries = hub_entries(name, revision, token, selection)
        if not folder.exists():
            fetch_files(name, revision, entries, partial, token)
    except errors.GatedRepoError as error:
        raise InputError(
            f"{name} is gated: ask for access on its page, and set {TOKEN} to a token that has it"
        ) from error
    except errors.RepositoryNotFoundError as error:
        is_set = "set" if token else "not set"
        raise InputError(f"the hub has no model {name}, or it is private ({TOKEN} is {is_set})") from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{name} has no commit {revision} on the hub") from error
    except (errors.HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(". ")
        raise InputError(
            f"{name} was not fetched whole ({reason}); what has arrived is in {partial}: run the same command again"
        ) from error
    if folder.exists():
        if other := next((entry.path for entry in entries if not is_same_file(folder / entry.path, entry)), None):
            raise InputError(
                f"{folder} is there already, and its {other} is not that of {name} at {revision}: name another folder"
            )
        return folder
    selection.check(partial, name)
    partial.rename(folder)
    return folder


def hub_entries(name: str, revision: str, token: str | bool, selection: Selection) -> list[Any]:
    """The files of a selection as the hub lists them (huggingface_hub's RepoFile).

    Raises InputError for a model without what it needs, and huggingface_hub's errors.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    tree = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=token).list_repo_tree(name, revision=revision)
    names = [entry for entry in tree if isinstance(entry, RepoFile)]
    entries = [entry for entry in names if any(fnmatch(entry.path, pattern) for pattern in selection.patterns)]
    if not any(fnmatch(entry.path, pattern) for entry in entries for pattern in selection.needed):
        raise InputError(f"{name} has no {selection.noun} at {revision}; other formats are not read")
    return entries


def fetch_files(name: str, revision: str, entries: list[Any], folder: Path, token: str | bool) -> None:
    """Fetch files into `folder`, each from where an earlier attempt was cut off; huggingface_hub's own snapshot_download begins a file anew
    (2.4.0), and compares no checksum. What an attempt for another commit left there goes.

    Raises InputError for a disk that is too small and a file of another checksum; and huggingface_hub's errors.
    """
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    endpoint = os.environ.get("HF_ENDPOINT") or None
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {entry.path: entry for entry in entries}
    for file in folder.iterdir():
        entry = by_name.get(file.name.removesuffix(INCOMPLETE))
        if entry is None or not (file.name.endswith(INCOMPLETE) or is_same_file(file, entry)):
            file.unlink()
    left = [entry for entry in entries if not (folder / entry.path).exists()]
    if (size := sum(entry.size for entry in left)) > (free := shutil.disk_usage(folder).free):
        raise InputError(f"{name} has {size / 1e9:.1f} GB to fetch, and {folder} has {free / 1e9:.1f} GB free")
    for entry in left:
        file = folder / f"{entry.path}{INCOMPLETE}"
        with file.open("ab") as out:
            http_get(
                hf_hub_url(name, entry.path, revision=revision, endpoint=endpoint),
                out,
                resume_size=out.tell(),
                headers=build_hf_headers(token=token),
                expected_size=entry.size,
                displayed_filename=entry.path,
            )
        if not is_same_file(file, entry):
            file.unlink()
            raise InputError(f"{entry.path} of {name} arrived with another checksum; run the same command again")
        file.rename(folder / entry.path)


def is_same_file(file: Path, entry: Any) -> bool:
    """Whether a file is there and holds what the hub's entry names."""
    expected = entry.lfs.sha256 if entry.lfs else entry.blob_id
    return file.is_file() and content_id(file, by_git=entry.lfs is None) == expected


def content_id(file: Path, by_git: bool) -> str:
    """What the hub calls a file's content: SHA-256 in hex, or of a file that git itself keeps, git's id of it."""
    with file.open("rb") as data:
        if not by_git:
            return hashlib.file_digest(data, "sha256").hexdigest()
        text = data.read()
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()
