"""Checkpoints that are complete and cannot be read, such as one with a file that is all zeros: which file it is, and what helps.

What can be seen in a moment is looked at before a run resumes or starts from a checkpoint: the header of safetensors, and of DeepSpeed's
files, zip archives, the index, where each tensor begins and the checksum of all that is no tensor. The checksums of whole files are in the
seal, and all processes compare them together (`checkpoint.first_altered_file`).
"""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError

DAMAGED_PREFIX = "damaged-"  # before the name of a checkpoint that a run leaves behind


def remedy(path: Path, folder: Path) -> str:
    """What to do about the checkpoint at `path`: it is this run's where it is in `folder`, and another run's elsewhere."""
    if path.resolve().parent == folder.resolve():
        return f"remove the folder {path} to resume from the checkpoint before it"
    return "name another checkpoint in pretrain.train.start_from"


def damage_text(path: Path, tensors: bool = False) -> str:
    """Which file of the checkpoint at `path` cannot be read, and why; "" if there is none. tensors: read them all, too.

    What the file system does not give is no damage: OSError.
    """
    for file in sorted(path.rglob("*")):
        try:
            if file.suffix == ".safetensors":
                with safe_open(file, framework="pt"):
                    pass
            elif file.suffix == ".pt":
                _check_archive(file, tensors)
        except OSError:
            raise
        except Exception as error:  # bytes of any value make zipfile raise more than BadZipFile
            return f"{file} cannot be read ({error})"
    return ""


def _check_archive(file: Path, tensors: bool) -> None:
    """Raise what is wrong with a file of torch.save: https://docs.pytorch.org/docs/stable/notes/serialization.html."""
    with zipfile.ZipFile(file) as archive:
        for part in archive.infolist():
            with archive.open(part) as handle:  # reads what stands before the part
                if tensors or "/data/" not in part.filename:
                    while handle.read(1 << 24):  # its end compares the checksum
                        pass


def set_aside(path: Path, why: str) -> None:
    """Rename a checkpoint that cannot be used, and say why. For process 0."""
    aside = path.with_name(f"{DAMAGED_PREFIX}{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    log.warning("%s is not used: %s. The folder is now %s; remove it", path, why, aside.name)


@contextlib.contextmanager
def explain_damage(path: Path, folder: Path) -> Iterator[None]:
    """Raise InputError, which names the file, where reading the checkpoint at `path` fails and one of its files is damaged.

    folder: the run's. Files are looked at after a failure alone: reading is no slower.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as failure:
        if why := damage_text(path, tensors=True):
            raise InputError(f"{why}: {remedy(path, folder)}") from failure
        raise
