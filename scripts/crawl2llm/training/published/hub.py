"""Models of the Hugging Face hub, each at one commit, in folders named by it: fetched by `crawl2llm fetch-model`, used without a network.

A folder is there whole or not at all: files arrive in `<folder>.part`, where the next attempt goes on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.checks import check_published

MODELS = Path(".cache/models")  # below a run's working directory
NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")
INCOMPLETE = ".incomplete"  # how the name of a file ends that is not all here
TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
# What is fetched: no pickles, no code, no other formats.
PATTERNS = ("*.safetensors", "*.json", "tokenizer.model", "merges.txt", "*.jinja", "README.md", "LICENSE*", "NOTICE*")


def check_name(name: str, revision: str) -> None:
    """Raise InputError for what is no name of a model on the hub, or no whole commit: a branch would be another model tomorrow."""
    if not NAME.fullmatch(name) or ".." in name:
        raise InputError(
            f"{name!r} is no name of a model on the hub; allowed: OWNER/NAME, as HuggingFaceTB/SmolLM2-135M"
        )
    if not COMMIT.fullmatch(revision):
        raise InputError(
            f"the revision of {name} is {revision!r}; allowed: the 40 hex digits of a commit (the hub's page 'Files and versions', "
            "History)"
        )


def cache_folder(name: str, revision: str) -> Path:
    """Where a model lies, or would."""
    return MODELS / f"{name.replace('/', '--')}@{revision}"


def hub_folder(name: str, revision: str) -> Path:
    """The folder of a model at a commit. Raises InputError that says how to fetch it if it is not here, and as `check_name`."""
    check_name(name, revision)
    folder = cache_folder(name, revision)
    if not folder.is_dir():
        raise InputError(
            f"{name} at {revision} is not in {folder}: run crawl2llm fetch-model {name} --revision {revision} in this folder, where there "
            "is a network"
        )
    return folder


def fetch_model(name: str, revision: str, to: Path | None = None) -> Path:
    """The folder of a model at a commit, fetched unless it is there; `to` in place of the cache's.

    The token of gated models is that of the environment variable HF_TOKEN alone. Raises InputError for a model that cannot be had, in one
    line, and for one that is not as `check_published` wants it.
    """
    check_name(name, revision)
    folder = to or cache_folder(name, revision)
    if folder.exists():
        check_published(folder, name)
        return folder
    # Imported here: whoever asks for a folder needs no network.
    import httpx2
    from huggingface_hub import errors

    partial = folder.with_name(f"{folder.name}.part")
    token = os.environ.get(TOKEN) or False
    try:
        fetch_files(name, revision, partial, token)
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
    check_published(partial, name)
    partial.rename(folder)
    return folder


def fetch_files(name: str, revision: str, folder: Path, token: str | bool) -> None:
    """Fetch the files of PATTERNS into `folder`, each from where an earlier attempt was cut off; huggingface_hub's own snapshot_download
    begins a file anew (2.4.0), and compares no checksum.

    Raises InputError for a model without safetensors, a disk that is too small and a file of another checksum; and huggingface_hub's
    errors.
    """
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import build_hf_headers

    endpoint = os.environ.get("HF_ENDPOINT") or None
    tree = HfApi(endpoint=endpoint, token=token).list_repo_tree(name, revision=revision)
    names = [entry for entry in tree if isinstance(entry, RepoFile)]
    entries = [entry for entry in names if any(fnmatch(entry.path, pattern) for pattern in PATTERNS)]
    if not any(entry.path.endswith(".safetensors") for entry in entries):
        raise InputError(f"{name} has no safetensors at {revision}; other formats are not read")
    folder.mkdir(parents=True, exist_ok=True)
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
        if content_id(file, by_git=entry.lfs is None) != (entry.lfs.sha256 if entry.lfs else entry.blob_id):
            file.unlink()
            raise InputError(f"{entry.path} of {name} arrived with another checksum; run the same command again")
        file.rename(folder / entry.path)


def content_id(file: Path, by_git: bool) -> str:
    """What the hub calls a file's content: SHA-256 in hex, or of a file that git itself keeps, git's id of it."""
    with file.open("rb") as data:
        if not by_git:
            return hashlib.file_digest(data, "sha256").hexdigest()
        text = data.read()
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()
