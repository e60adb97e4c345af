"""Plug-ins: filters outside the project, which `plugins` in the config names, and which work as those of the project do.

They are loaded when a config is validated, before anything else of it is looked at, and once in a process: only files that the config names
(filters/framework/plugin_loading.py says how). A job, and a program, loads them from the frozen copy of its run (core/code_snapshot.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.stage_names import FILTER_NAMES, KNOWN_FILTERS, PLUGIN_FILTERS
from crawl2llm.chain.step import Filter
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.settings import Settings

if TYPE_CHECKING:
    from types import ModuleType

KEY, FILTERS_KEY = "plugins", "plugin_filters"  # in a fingerprint that a program gets
COPY = "plugins"  # in a frozen copy: their files, in a folder for each, by its number in the config


@dataclass(frozen=True)
class PluginFilter:
    """A filter of a plug-in.

    number: of its plug-in in the config. package: the name that this is imported by. sources: its file, and what that imports, by path in
    the plug-in's folder. display: how a message calls the file. module: the file as it was run. declaration: its steps. measuring,
    columns and rules: the class, the schema and the function in it. settings: the class of its section of the config.
    """

    name: str
    number: int
    package: str
    sources: dict[PurePosixPath, bytes]
    display: str
    module: ModuleType
    declaration: Filter
    measuring: Any
    columns: Any
    rules: Any
    settings: Any

    @cached_property
    def file(self) -> PurePosixPath:
        """Its file in the plug-in's folder."""
        return PurePosixPath(f"{self.name}.py")

    @cached_property
    def statements(self) -> dict[str, list[Any]]:
        """`score` and `select` → the statements of its file that each runs."""
        from crawl2llm.chain import plugin_code

        columns = next(name for name, value in vars(self.module).items() if value is self.columns)
        return plugin_code.statements_by_step(
            self.sources[self.file], names_of_settings(self.module), self.measuring.__name__, columns, "rules"
        )

    def meanings_of(self, step: str) -> dict[str, str]:
        """A hash of what a step runs of each file; a folder that moves reruns nothing."""
        from crawl2llm.chain import plugin_code

        hashes = {path: plugin_code.meaning_of_file(content) for path, content in self.sources.items()}
        hashes[self.file] = plugin_code.meaning_of(self.statements[step.partition(".")[2]])
        return {f"{self.code_prefix}{path}": mark for path, mark in hashes.items()}

    @property
    def code_prefix(self) -> str:
        """What the names of its files begin with in a fingerprint."""
        return f"{COPY}/{self.name}/"

    def modules_of(self, step: str) -> list[str]:
        """The modules of the project that a step runs: the framework's, and what the plug-in imports."""
        import ast

        from crawl2llm.chain import plugin_code

        name = step.partition(".")[2]
        trees: list[ast.AST] = [ast.parse(content) for path, content in self.sources.items() if path != self.file]
        imports = plugin_code.project_imports([*self.statements[name], *trees])
        return [f"crawl2llm.filters.framework.{name}", *imports]


LOADED: dict[str, PluginFilter] = {}  # by name, in the order of the steps
_places: list[tuple[str, str]] = []  # those of the config: as it has them, and the folders that these are here


def _plugin_loader() -> Any:
    """The module that loads plug-ins. It needs the framework of filters, which lies above this package, and heavy libraries."""
    return import_module("crawl2llm.filters.framework.plugin_loading")


def names_of_settings(module: ModuleType) -> list[str]:
    """The classes of settings that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Settings) and value.__module__ == module.__name__
    ]


def strings_in(value: Any) -> Iterator[str]:
    """All keys and texts in a config, and the parts of dotted keys: a filter is loaded if it is among them."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from strings_in(key)
            yield from strings_in(child)
    elif isinstance(value, list):
        for child in value:
            yield from strings_in(child)
    elif isinstance(value, str):
        yield value
        yield from value.split(".")


def load_plugins_of(config: Any) -> None:
    """Load the filters of plug-ins that a config names, and forget those of others. Raises ConfigError for one with a fault.

    A value of `plugins` that is no list of texts is left to those who check the config.
    """
    if not isinstance(config, dict):
        return
    places = config.get(KEY, [])
    places = [places] if isinstance(places, str) else places  # the check of the config says what is wrong
    if isinstance(places, list) and all(isinstance(place, str) for place in places):
        use_plugins(places, set(strings_in(config)) if places else set(), listed_filters(config))


def listed_filters(config: dict[str, Any]) -> set[str]:
    """The names that a config, or a variant of it, has in `filters`; the config may be wrong."""
    variants = config.get("variants")
    overlays = [config, *(variants.values() if isinstance(variants, dict) else ())]
    lists = [overlay.get("filters") for overlay in overlays if isinstance(overlay, dict)]
    return {name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)}


def use_plugins(places: list[str], names: Collection[str], listed: Collection[str] = ()) -> None:
    """Load the filters among `names` of these plug-ins. Those that are loaded stay, if the plug-ins are the same.

    listed: see plugin_loading.load_filters. Raises ConfigError for a filter with a fault.
    """
    here = [(place, str(Path(place).resolve())) for place in places]
    if here != _places:
        unload()
        _places[:] = here
    if not places:
        return
    try:
        loaded, known = _plugin_loader().load_filters(places, set(names), listed, LOADED)
    except BaseException:
        unload()
        raise
    KNOWN_FILTERS[:] = [*FILTER_NAMES, *known]
    if loaded:
        LOADED.update(loaded)
        _register()


def _register() -> None:
    """Let the tables of filters, steps and settings have what is loaded."""
    from crawl2llm.chain import settings_registry

    for name in PLUGIN_FILTERS:
        del filter_order.FILTERS[name]
    PLUGIN_FILTERS[:] = LOADED
    filter_order.FILTERS.update({name: plugin.declaration for name, plugin in LOADED.items()})
    steps.collect_again()
    settings_registry.take_plugin_classes({name: plugin.settings for name, plugin in LOADED.items()})
    for name, plugin in LOADED.items():
        if unknown := [other for other in plugin.declaration.after if other not in KNOWN_FILTERS]:
            unload()
            raise ConfigError(
                f"{plugin.display}: the filter {name} names {unknown[0]!r} in AFTER; allowed are {', '.join(KNOWN_FILTERS)}"
            )


def unload() -> None:
    """Forget all plug-ins."""
    from crawl2llm.chain import settings_registry

    were_used = bool(_places)
    _places.clear()
    KNOWN_FILTERS[:] = FILTER_NAMES
    LOADED.clear()
    settings_registry.take_plugin_classes({})  # the names that are known are in a schema
    if were_used:  # perhaps to a fault
        _plugin_loader().forget_modules()
        _register()


def loaded_places() -> dict[str, list[str]]:
    """What a program needs to load the same again; nothing without plug-ins."""
    return {KEY: [place for place, _ in _places], FILTERS_KEY: list(LOADED)} if LOADED else {}


def frozen_files() -> dict[Path, bytes]:
    """The files of all that is loaded, by their path in a frozen copy."""
    return {
        Path(COPY, str(plugin.number), plugin.package, path): content
        for plugin in LOADED.values()
        for path, content in plugin.sources.items()
    }
