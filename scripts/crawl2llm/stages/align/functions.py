"""Rewards by a Python function of the user's own: its file is run as it is, with modules beside it that are its own."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from crawl2llm.core.errors import InputError

Reward = Callable[[str, str, str | None], float]  # (question, answer, the row's answer)


def parse_function_path(name: str, key: str) -> tuple[Path, str]:
    """(file, function) of `path/to/file.py:function`. Raises InputError, naming the key, for another form."""
    path, _, function = name.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise InputError(f"{key} is {name!r}; allowed is path/to/file.py:function")
    return Path(path), function


def _is_in_folder(name: str, module: ModuleType, folder: Path) -> bool:
    """Whether a module is of a file, or of a package, in a folder."""
    top = folder / name.partition(".")[0]
    file = getattr(module, "__file__", None)
    places = [Path(place) for place in ([file] if file else getattr(module, "__path__", []))]
    return any(place == top.with_name(f"{top.name}.py") or place.is_relative_to(top) for place in places)


@contextmanager
def _folder_imports(folder: Path, modules: dict[str, ModuleType]) -> Iterator[None]:
    """Import as `python folder/file.py` does, with the modules `modules`; those beside the file are added to them, and are gone afterwards.

    Another file may have other modules of the same names beside it.
    """
    before = dict(sys.modules)
    sys.modules.update(modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        after = dict(sys.modules)
        for name, module in after.items():
            top = name.partition(".")[0]
            # As it was, or in a package that others use.
            if before.get(name) is module or before.get(top) is after.get(top):
                continue
            if name in modules or _is_in_folder(name, module, folder):
                modules[name] = sys.modules.pop(name)
                if name in before:
                    sys.modules[name] = before[name]


def load_function(name: str, key: str) -> Reward:
    """A user's function. Raises InputError if its file cannot be run, or where it fails or returns no number."""
    path, function = parse_function_path(name, key)
    spec = importlib.util.spec_from_file_location(f"reward_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    folder, modules = path.parent.resolve(), {spec.name: module}
    try:
        with _folder_imports(folder, modules):
            spec.loader.exec_module(module)
            call = getattr(module, function)
    except (Exception, SystemExit) as error:
        raise InputError(f"{key} is {name!r}, and the file failed: {type(error).__name__}: {error}") from error

    def checked_reward(question: str, answer: str, reference: str | None) -> float:
        try:
            with _folder_imports(folder, modules):
                value = float(call(question, answer, reference))
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{key} is {name!r}, which failed on the answer {answer[:200]!r}: {type(error).__name__}: {error}"
            ) from error
        if not math.isfinite(value):
            raise InputError(
                f"{key} is {name!r}, which returned {value} for the answer {answer[:200]!r}; allowed are finite numbers"
            )
        return value

    return checked_reward
