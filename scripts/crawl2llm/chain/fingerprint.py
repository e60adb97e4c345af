"""What decides a step's bytes, as one string: its settings, its code and everything upstream.

The string is a rule's only parameter. Snakemake reruns a task when it changes, and the program reads its settings
from it, so a program cannot depend on a key that is not tracked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from crawl2llm.chain import code_meaning, model_registry, plugins, shared_reference
from crawl2llm.chain.config import complete_variant, with_changed_paths
from crawl2llm.chain.config_schema import named_files, tracked_section
from crawl2llm.chain.data_folder import DATA, from_folder
from crawl2llm.chain.step import stage_of
from crawl2llm.chain.steps import (
    COMMON,
    COMPARE_ALL,
    FETCH,
    LIST,
    REPORT_STEP,
    STEPS,
    SYNTHESIZE,
    extra_settings,
    is_used,
    needed_steps_of_main,
    program_of,
    task_models,
    upstream_tasks,
)
from crawl2llm.chain.unhashed import VERSION, is_plumbing
from crawl2llm.core import content_hash, run_folder
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.manifest import canonical_json, digest
from crawl2llm.core.plan_cache import Cache
from crawl2llm.core.root import CODE_FOLDER, ROOT

# By the hash of a source's bytes and of those of the file that says what a meaning is.
CACHE = Path(".snakemake/meanings.json")
OWN_BYTES = Path(code_meaning.__file__).read_bytes()
RULES_OF_FILTERS = "scripts/crawl2llm/stages/report/declared_rules.py"  # reads them by the filter's name
# To parse all modules takes longer than the rest of a plan, and every new folder would.
_cached = Cache(CACHE, shared=ROOT / "scripts/crawl2llm/chain/__pycache__" / CACHE.name)


@cache
def _meaning_and_imports(name: str, root: Path) -> tuple[str, tuple[str, ...]]:
    """(hash of the meaning, imported project modules) of a source file below `root`, from the cache if its bytes are known."""
    raw = (root / name).read_bytes()
    mark = hashlib.sha256(OWN_BYTES + raw).hexdigest()
    if mark not in _cached.values:
        meaning, imports = code_meaning.parse_source(raw.decode(), root / name)
        _cached.keep_value(mark, [digest(meaning), imports])
    meaning_digest, imports = _cached.values[mark]
    return meaning_digest, tuple(imports)


def save_hashes() -> None:
    """Keep the hashes for the jobs of this run and the next plan."""
    _cached.save()


@cache
def _files_run_by(module: str, root: Path) -> tuple[str, ...]:
    """The files that an import of `module`, or of all that a pattern matches, runs, without plumbing: the modules' and the __init__.py of
    their packages; paths below `root`.
    """
    name = f"{CODE_FOLDER}/{module.replace('.', '/')}"
    # One module has its path without a look at the folder: every start of Snakemake asks for hundreds.
    stems = [name] if "*" not in name else sorted(str(path.relative_to(root))[:-3] for path in root.glob(f"{name}.py"))
    packages = [folder for stem in stems for folder in (stem, *map(str, PurePosixPath(stem).parents))]
    inside = (f"{folder}/__init__.py" for folder in packages if folder.startswith(f"{CODE_FOLDER}/"))
    names = (*(f"{stem}.py" for stem in stems), *inside)
    return tuple(name for name in names if not is_plumbing(name) and os.path.isfile(f"{root}/{name}"))  # noqa: PTH113


def import_closure(module: str, root: Path = ROOT) -> list[str]:
    """The files of `module` and of every project module that it imports, as sorted paths below `root`; no plumbing, and nothing that
    plumbing imports.
    """
    files: set[str] = set()
    queue = [module]
    while queue:
        for name in _files_run_by(queue.pop(), root):
            if name not in files:
                files.add(name)
                queue += _meaning_and_imports(name, root)[1]
    return sorted(files)


def resource_files(module: str, root: Path = ROOT) -> list[Path]:
    """The files beside a step's program that are not code (pages, templates, styles, what is compiled), sorted.

    One that modules of the folder name counts for the steps that these take part in; any other for all steps of the folder.
    """
    folder = (root / CODE_FOLDER / module.replace(".", "/")).parent
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    beside = sorted(path for path in files if path.suffix != ".py" and not path.name.startswith("."))
    if not beside:  # as in most folders, whose modules need not be read for it
        return []
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix == ".py"}
    taking_part = {root / name for name in import_closure(module, root)}
    naming = {path: {each for each, text in texts.items() if path.name in text} for path in beside}
    return [path for path in beside if not naming[path] or naming[path] & taking_part]


@cache
def code_hashes(module: str, root: Path = ROOT) -> dict[str, str]:
    """A hash of the meaning of each module in a module's import closure, and of each resource beside it, by path.

    `plumbing` is the number that declares by hand what no hash shows (chain/unhashed.py).
    """
    hashes = {"plumbing": str(VERSION)}
    hashes |= {name: _meaning_and_imports(name, root)[0] for name in import_closure(module, root)}
    for path in resource_files(module, root):
        hashes[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return hashes


def step_code(step: str, filters: Collection[str]) -> dict[str, str]:
    """The code of a step: of a plug-in, the framework's and that part of its file which the step runs.

    filters: of the run. The code of a step that reads the rules of all filters has those of plug-ins, too.
    """
    if (stage := stage_of(step)) in plugins.LOADED:
        plugin = plugins.LOADED[stage]
        meanings, modules = plugin.meanings_of(step), plugin.modules_of(step)
        return {**{name: mark for module in modules for name, mark in code_hashes(module).items()}, **meanings}
    hashes = dict(code_hashes(program_of(step)))
    if RULES_OF_FILTERS in hashes:
        for name in filter(plugins.LOADED.get, filters):
            hashes |= plugins.LOADED[name].meanings_of(f"{name}.select")
    return hashes


FILES_BY_KIND = {
    "yaml": content_hash.files_named_by,
    "manifests": content_hash.manifests_in,
    "function": content_hash.imported_files,
}  # the files behind a path, by the schema's kind


def file_hashes(step: str, config: dict[str, Any]) -> dict[str, str]:
    """What the files hold that the step's settings name (`file=True`), by key and path.

    Raises ConfigError, naming the key, for a file that is not there.
    """
    hashes: dict[str, str] = {}
    for key, name, kind in named_files(config, step):
        try:
            paths = FILES_BY_KIND.get(kind, content_hash.files_below)(Path(name))
            hashes |= {
                f"{key} {_path_below_data(path, name, config['data'])}": content_hash.cached_hash(path)
                for path in paths
            }
        except OSError as error:
            raise ConfigError(f"{key} is {name!r}: {error.strerror or error}{run_folder.search_hint(name)}") from error
    return hashes


def _path_below_data(path: Path, name: str, data: str) -> str:
    """The path of a file that a key names by `name`: below `{data}` if it is named so, so that a folder that moves reruns nothing."""
    inside = from_folder(name, data) != name and path.is_relative_to(data)
    return f"{DATA}/{path.relative_to(data)}" if inside else str(path)


def tracked_settings(step: str, config: dict[str, Any], task: str = "") -> dict[str, Any]:
    """The tracked settings of a step's task under a complete config: those that its program gets, its own and what it is told of others.

    task: the model, of a step that has a task for each.
    """
    return {
        **tracked_section(model_registry.config_for_model(config, step, task), step),
        **extra_settings(step, config, task),
    }


def config_naming_files(step: str, config: dict[str, Any], task: str) -> dict[str, Any]:
    """The config whose keys name a step's files."""
    return STEPS[step].files_config(model_registry.config_for_model(config, step, task), task)


def task_file_hashes(step: str, config: dict[str, Any], task: str = "") -> dict[str, str]:
    """As `file_hashes`, of the files that a step's task reads: the plan of a training reads the checkpoint that it starts from."""
    return file_hashes(STEPS[step].files_of or step, config_naming_files(step, config, task))


def split_differs(config: dict[str, Any], main: dict[str, Any], main_memo: dict[str, str]) -> bool:
    """Whether anything that corpus.split depends on differs between a variant and main. main_memo: main's fingerprints so far."""
    return fingerprint("corpus.split", config) != fingerprint("corpus.split", main, main_memo)


def config_of_variant(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The whole config of a variant, with what it is compared with (chain/shared_reference.py); `main` is the config itself.

    Raises ConfigError.
    """
    if name not in config["variants"]:
        return config
    reference = shared_reference.Reference(config, split_differs)
    return {**complete_variant(config, name), shared_reference.KEY: reference}


COMPARED_STEPS = (REPORT_STEP, COMMON)  # what report.compare reads of every variant


def compared_digests(config: dict[str, Any], memo: dict[str, str]) -> dict[str, str]:
    """A digest of the fingerprint of every variant's report, and of each evaluation on the common text, by `variant/step model`.

    memo: of main's fingerprints; a project puts those of the other variants there too.
    """
    digests = {}
    for name in ("main", *config["variants"]):
        variant_config, variant_memo = (
            (config, memo) if name == "main" else (config_of_variant(config, name), dict[str, str]())
        )
        for step in COMPARED_STEPS:
            for model in task_models(step, variant_config) if is_used(step, variant_config) else []:
                key = f"{name}/{step} {model}".rstrip()
                if key not in memo:
                    memo[key] = fingerprint(step, variant_config, variant_memo, model)
                digests[key] = digest(memo[key])
    return digests


def fingerprint(step: str, config: dict[str, Any], memo: dict[str, str] | None = None, task: str = "") -> str:
    """Canonical JSON of {step, config, code, files, upstream} for a step under a complete config.

    Paths in the folder `data` begin with `{data}`: what their files hold counts, and not where it lies (see `fingerprint_for_program`).
    `code` and `upstream` name each module and each step above with a hash, so that two fingerprints can be compared.
    A change anywhere above reaches a step even when the run in between was interrupted. task: the model, of a step that has a
    task for each; other steps' tasks need the same.
    """
    memo = {} if memo is None else memo
    key = f"{step} {task}".rstrip()
    if key not in memo:
        above = {
            # Of a list of remote files, and of the files of synthesized texts, a shard consumes its own part, which its manifest names: a
            # file more, or other texts, run few shards again.
            f"{name} {model}".rstrip(): ""
            if name in (LIST, *SYNTHESIZE)
            else digest(fingerprint(name, config, memo, model))
            for name, model in upstream_tasks(step, config, task)
            if name != FETCH  # a copy on the disk, which changes no document
        }
        above |= {
            f"{name} of main": digest(
                fingerprint(name, shared_reference.main_or_own_config(config), shared_reference.main_memo(config, memo))
            )
            for name in needed_steps_of_main(step, config)
        }
        if step == COMPARE_ALL:
            above = compared_digests(config, memo)
        memo[key] = canonical_json(
            {
                "step": step,
                "config": with_changed_paths(
                    step, tracked_settings(step, config, task), partial(from_folder, data=config["data"])
                ),
                "code": step_code(step, config["filters"]),
                "files": task_file_hashes(step, config, task),
                "upstream": above,
            }
        )
    return memo[key]


def fingerprint_for_program(fingerprint: str, data: str) -> str:
    """A fingerprint as a step's program gets it: with the folder that `{data}` stands for, if there is any, and the plug-ins of the run."""
    names_folder = f'"{DATA}' in fingerprint or f" {DATA}" in fingerprint
    places: dict[str, Any] = {"data": data} if names_folder else {}
    if not places and not plugins.LOADED:
        return fingerprint
    body = json.loads(fingerprint)
    # Other environments need not have what a plug-in imports; their steps know no filters.
    places |= plugins.loaded_places() if STEPS[body["step"]].environment == "data" else {}
    return canonical_json({**body, **places}) if places else fingerprint
