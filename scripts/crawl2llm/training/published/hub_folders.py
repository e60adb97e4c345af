"""Where models and tokenizers of the Hugging Face hub lie that were fetched, each at one commit, in a folder named by it."""

from __future__ import annotations

import re
from pathlib import Path

from crawl2llm.core.errors import InputError

MODELS, TOKENIZERS = Path(".cache/models"), Path(".cache/tokenizers")  # below a run's working directory
NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")


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


def cache_folder(name: str, revision: str, parent: Path = MODELS) -> Path:
    """Where a model lies, or would; in TOKENIZERS its tokenizer alone."""
    return parent / f"{name.replace('/', '--')}@{revision}"


def name_of_folder(folder: Path) -> str:
    """The name on the hub of a model that lies in a `cache_folder`; that of another folder."""
    name, _, revision = folder.name.partition("@")
    return name.replace("--", "/", 1) if COMMIT.fullmatch(revision) else folder.name


def hub_folder(name: str, revision: str) -> Path:
    """The folder of a model at a commit. Raises InputError that says how to fetch it if it is not here, and as `check_name`."""
    check_name(name, revision)
    folder = cache_folder(name, revision)
    if not folder.is_dir():
        raise InputError(
            f"{name} at {revision} is not in {folder}: run crawl2llm fetch-model {name} --revision {revision} --to {folder.absolute()}, "
            "where there is a network"
        )
    return folder


def tokenizer_folder(name: str, revision: str) -> Path:
    """The folder of a tokenizer at a commit, fetched alone or with its model. Raises InputError as `hub_folder`."""
    check_name(name, revision)
    folders = [cache_folder(name, revision, parent) for parent in (TOKENIZERS, MODELS)]
    for folder in folders:
        if folder.is_dir():
            return folder
    raise InputError(
        f"the tokenizer of {name} at {revision} is not in {folders[0]}: run crawl2llm fetch-model {name} --revision {revision} "
        f"--tokenizer --to {folders[0].absolute()}, where there is a network"
    )
