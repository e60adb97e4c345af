"""Load the filters of a plug-in: find the files, run them, and check what they declare.

A file declares what a filter of the project declares in four: `ScoreSettings` and `SelectSettings` (core/settings.py; one without keys may
be left out), a schema of its measures and one class that measures (filters/framework/score.py), `rules` (filters/framework/rules.py), and
in AFTER the filters that come before it, if there are any. Steps and programs follow from these.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pyarrow as pa
from pydantic import ValidationError, create_model

from crawl2llm.chain import plugin_code
from crawl2llm.chain.plugins import COPY, PluginFilter
from crawl2llm.chain.run_settings import RunSettings
from crawl2llm.chain.stage_names import ALL_NAMES
from crawl2llm.chain.step import measuring_filter
from crawl2llm.core import code_snapshot, run_folder
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.root import ROOT
from crawl2llm.core.settings import Settings, schema_node, section
from crawl2llm.filters.framework.rules import Match, Rule, value_at
from crawl2llm.filters.framework.score import IDENTITY, Measuring

NAME = re.compile(r"[a-z][a-z0-9]*")
PACKAGE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
TAKEN = {*ALL_NAMES, *RunSettings.model_fields, "main", "all"}


class _Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules from bytes that were read before, so that what runs is what was hashed.

    modules: name → (source, file, whether it is a package).
    """

    def __init__(self) -> None:
        self.modules: dict[str, tuple[bytes, str, bool]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.modules:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=self.modules[name][2])

    def exec_module(self, module: ModuleType) -> None:
        source, file, _ = self.modules[module.__name__]
        exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - code that the config names, as an import does

    def add(self, package: str, sources: Mapping[PurePosixPath, bytes], place: str) -> None:
        """Take the files of a filter. place: how a message calls the folder."""
        self.modules.setdefault(package, (b"", place, True))
        for path, content in sources.items():
            is_package = path.name == "__init__.py"
            parts = path.parent.parts if is_package else path.with_suffix("").parts
            for number in range(1, len(parts)):  # a folder without __init__.py
                self.modules.setdefault(".".join([package, *parts[:number]]), (b"", place, True))
            self.modules[".".join([package, *parts])] = (content, str(Path(place, path)), is_package)


_sources = _Sources()


def forget_modules() -> None:
    """Forget what was imported of all plug-ins."""
    for name in _sources.modules:
        sys.modules.pop(name, None)
    _sources.modules.clear()
    if _sources in sys.meta_path:
        sys.meta_path.remove(_sources)


def find_folder(place: str, number: int) -> tuple[Path | None, str]:
    """(the folder of a plug-in, the name that it is imported by); no folder in a frozen copy of a run that takes nothing of it.

    Raises ConfigError for what is neither a folder nor an installed package.
    """
    if code_snapshot.project_folder(ROOT) != ROOT:
        folder = next(iter(sorted((ROOT / COPY / str(number)).glob("*"))), None)
        return folder, folder.name if folder else ""
    if Path(place).is_dir():
        return Path(place), f"crawl2llm_plugin_{number}"
    spec = None
    if PACKAGE_NAME.fullmatch(place):
        try:
            spec = importlib.util.find_spec(place)
        except (ImportError, ValueError):
            spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"plugins has {place!r}, which is neither a folder here nor an installed package{run_folder.search_hint(place)}"
        )
    return Path(next(iter(spec.submodule_search_locations))), place


def declares_rules(content: bytes) -> bool:
    """Whether a file has what only a filter has."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == "rules" for node in tree.body)


def load_filters(
    places: Sequence[str], names: Collection[str], listed: Collection[str], loaded: Mapping[str, PluginFilter]
) -> tuple[dict[str, PluginFilter], list[str]]:
    """(the filters among `names` that are not loaded, all that the plug-ins have). Raises ConfigError for one with a fault.

    listed: names that the config has as filters, so that a file of such a name is one, whatever it lacks.
    """
    new: dict[str, PluginFilter] = {}
    known: dict[str, str] = {}  # name → the file that has it
    if _sources not in sys.meta_path:
        sys.meta_path.insert(0, _sources)
    for number, place in enumerate(places):
        folder, package = find_folder(place, number)
        for path in sorted(folder.glob("*.py")) if folder else ():
            name, display = path.stem, str(Path(place, path.name))
            is_filter = declares_rules(path.read_bytes())
            can_be_added = bool(NAME.fullmatch(name)) and name not in TAKEN
            if (is_filter and name in names) or (name in listed and name not in TAKEN):
                _check_name(name, display, known)
                if name not in loaded and folder:
                    new[name] = load_filter(name, number, package, folder, place)
            elif not is_filter or not can_be_added:
                continue
            known[name] = display
    return new, list(known)


def _check_name(name: str, display: str, known: Mapping[str, str]) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{display}: a filter is called by its file, in small letters and digits, a letter first")
    if name in TAKEN:
        raise ConfigError(
            f"{display}: a stage, a filter or a key of the config is called {name!r} already; rename the file"
        )
    if name in known:
        raise ConfigError(f"{display}: {known[name]} also defines the filter {name!r}; rename one of the files")


def place_of_fault(error: BaseException, files: Collection[str]) -> str:
    """`:line` of an error in one of these files, with the file unless it is the first; "" of an error elsewhere."""
    first = next(iter(files))
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.filename if error.filename in files else first}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else first


def fault_text(error: BaseException, name: str, files: Collection[str]) -> str:
    """What failed in a filter, and where. files: its own, as messages call them, the filter's first."""
    words = (
        f"{type(error).__name__}: {error.msg}" if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
    )
    return f"{place_of_fault(error, files)}: the filter {name} failed: {words}"


def files_of(name: str, place: str, sources: Mapping[PurePosixPath, bytes]) -> list[str]:
    """How messages call the files of a filter, its own first."""
    first = PurePosixPath(f"{name}.py")
    return [str(Path(place, path)) for path in sorted(sources, key=lambda path: (path != first, path))]


def load_filter(name: str, number: int, package: str, folder: Path, place: str) -> PluginFilter:
    """Run the file of a filter, and check what it declares. Raises ConfigError that names the file, and the line of a fault."""
    display = str(Path(place, f"{name}.py"))

    def read(path: PurePosixPath) -> bytes | None:
        file = folder / path
        return file.read_bytes() if file.is_file() else None

    try:
        sources = plugin_code.collect_sources(PurePosixPath(f"{name}.py"), package, read)
    except (SyntaxError, ValueError) as error:
        file = str(Path(place, getattr(error, "filename", None) or f"{name}.py"))
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        words = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"{file}{line}: the filter {name} failed: {type(error).__name__}: {words}") from error
    files = files_of(name, place, sources)
    _sources.add(package, sources, place)
    try:
        module = importlib.import_module(f"{package}.{name}")
    except (Exception, SystemExit) as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and (folder / f"{error.name}.py").is_file():
            hint = f"; a file beside it is imported so: from . import {error.name}"
        raise ConfigError(fault_text(error, name, files) + hint) from error
    return PluginFilter(
        name=name,
        number=number,
        package=package,
        sources=sources,
        display=display,
        module=module,
        **_checked_declarations(module, name, files),
    )


def _checked_declarations(module: ModuleType, name: str, files: Sequence[str]) -> dict[str, Any]:
    """The fields of a PluginFilter that its file declares. files: see `fault_text`. Raises ConfigError for one with a fault."""
    display = files[0]
    values = vars(module)
    classes = [
        value
        for value in values.values()
        if isinstance(value, type) and issubclass(value, Measuring) and value.__module__ == module.__name__
    ]
    schemas = [value for value in values.values() if isinstance(value, pa.Schema)]
    for things, what in (
        (classes, "class that measures (a Measuring of crawl2llm.filters.framework.score)"),
        (schemas, "list of its measures (signal_schema of crawl2llm.filters.framework.score)"),
    ):
        if len(things) != 1:
            raise ConfigError(f"{display}: the filter {name} needs one {what}; the file has {len(things)}")
    if not callable(values.get("rules")):
        raise ConfigError(f"{display}: the filter {name} needs a function rules(settings); the file has none")
    after = values.get("AFTER", ())
    if not isinstance(after, tuple | list) or not all(isinstance(other, str) for other in after):
        raise ConfigError(
            f'{display}: AFTER is {after!r}; allowed is a tuple of names of filters, such as ("language",)'
        )
    kinds = {
        step: values.get(key, Settings) for step, key in (("score", "ScoreSettings"), ("select", "SelectSettings"))
    }
    for step, kind in kinds.items():
        _check_settings(f"{name}.{step}", kind, display)
    whole: type[Settings] = create_model(
        f"{name.capitalize()}Settings",
        __base__=Settings,
        __doc__=module.__doc__,
        score=(kinds["score"], section()),
        select=(kinds["select"], section()),
    )
    measuring, columns = classes[0], schemas[0]
    try:
        _check_rules(values["rules"](kinds["select"]()), kinds["select"], columns, display)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(fault_text(error, name, files)) from error
    declaration = measuring_filter(
        reads_texts=measuring.reads_texts,
        reads_languages=measuring.reads_languages,
        edits=measuring.edits,
        after=after,
    )
    return {
        "declaration": declaration,
        "measuring": measuring,
        "columns": columns,
        "rules": values["rules"],
        "settings": whole,
    }


def _check_settings(step: str, kind: Any, display: str) -> None:
    """Raise ConfigError if a class of settings has what a config cannot: a key without a default, or a type that YAML has not."""
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        raise ConfigError(f"{display}: the settings of {step} are no class of crawl2llm.core.settings.Settings")
    try:
        node = schema_node(kind)
        kind()
    except (ValidationError, KeyError, TypeError) as error:
        words = str(error).replace("\n", "; ")
        raise ConfigError(f"{display}: {kind.__name__}: every key needs a type and a default: {words}") from error
    for key, child in node["properties"].items():
        if "description" not in child:
            raise ConfigError(f'{display}: {kind.__name__}.{key} has no meaning: setting(default, "its meaning")')


def _check_rules(rules: Any, kind: type[Settings], columns: pa.Schema, display: str) -> None:
    """Raise ConfigError if a rule names a measure or a key that there is not. kind: the settings of `select`."""
    measures = [name for name in columns.names if name not in IDENTITY]
    for rule in rules:
        if not isinstance(rule, Rule | Match):
            raise ConfigError(
                f"{display}: rules gives {rule!r}; allowed are Rule and Match of crawl2llm.filters.framework.rules"
            )
        column = rule.measure if isinstance(rule, Rule) else rule.column
        if isinstance(column, str) and column not in columns.names:
            raise ConfigError(
                f"{display}: the rule {rule.name!r} compares {column!r}; its measures are {', '.join(measures)}"
            )
        for key in [rule.threshold, *(rule.also or ())[1:]] if isinstance(rule, Rule) else []:
            try:
                value_at(kind(), key) if isinstance(key, str) else None
            except AttributeError as error:
                raise ConfigError(
                    f"{display}: the rule {rule.name!r} has the threshold {key!r}; the keys of SelectSettings are "
                    f"{', '.join(kind.model_fields) or 'none'}"
                ) from error
