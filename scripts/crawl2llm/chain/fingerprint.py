"""What decides a step's bytes, as one string: its settings, its code and everything upstream.

The string is a rule's only parameter. Snakemake reruns a task when it changes, and the program reads its settings
from it, so a program cannot depend on a key that is not tracked.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache, partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import halving, model_registry, shared_reference, step_inputs
from crawl2llm.chain.config import of_variant, with_paths
from crawl2llm.chain.config_schema import named_files, tracked
from crawl2llm.chain.data_folder import DATA, from_folder
from crawl2llm.chain.steps import (
    COMMON,
    COMPARE_ALL,
    FETCH,
    LAST,
    LIST,
    PLAN,
    PUBLIC,
    RUNG,
    SETS,
    STAGE,
    SYNTHESIZE,
    common,
    is_used,
    models,
    program_of,
    upstream,
)
from crawl2llm.chain.unhashed import VERSION, is_plumbing
from crawl2llm.core import content_hash, run_folder
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.manifest import canonical, digest
from crawl2llm.core.plan_cache import Cache
from crawl2llm.core.root import CODE_FOLDER, ROOT

# By the hash of a source's bytes and of those of this file, which says what a meaning is.
CACHE = Path(".snakemake/meanings.json")
OWN = Path(__file__).read_bytes()
PACKAGE = "crawl2llm"
# To parse all modules takes longer than the rest of a plan, and every new folder would.
_cached = Cache(CACHE, shared=ROOT / "scripts/crawl2llm/chain/__pycache__" / CACHE.name)


@cache
def _module(path: Path) -> tuple[str, tuple[str, ...]]:
    """(hash of the meaning, imported project modules) of a source file, from the cache where its bytes are known."""
    raw = path.read_bytes()
    mark = hashlib.sha256(OWN + raw).hexdigest()
    if mark not in _cached.held:
        meaning, imports = parsed(raw.decode(), path)
        _cached.keep(mark, [digest(meaning), imports])
    found, imports = _cached.held[mark]
    return found, tuple(imports)


def save() -> None:
    """Keep the hashes for the jobs of this run and the next plan."""
    _cached.save()


def parsed(source: str, path: Path) -> tuple[str, list[str]]:
    """(meaning, imported project modules) of a source: comments, docstrings and layout do not count."""
    tree = ast.parse(source, filename=str(path))
    imports: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names if alias.name.startswith(f"{PACKAGE}.")]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}:{node.lineno}: write `from crawl2llm.…`; relative imports are not followed")
            if (node.module or "").split(".")[0] == PACKAGE:
                imports += [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return _meaning(tree), list(dict.fromkeys(imports))


def _meaning(node: Any) -> str:
    """A syntax tree as text. Unlike ast.dump, the same under every version of Python: what is empty is left out."""
    if isinstance(node, ast.AST):
        fields = (f"{name}={_meaning(value)}" for name, value in ast.iter_fields(node) if value not in (None, []))
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(map(_meaning, node))}]"
    return repr(node)


@cache
def _run_by(module: str, root: Path) -> tuple[Path, ...]:
    """The files that an import of `module` runs, plumbing left out: its own, and the __init__.py of its packages."""
    stem = root / CODE_FOLDER / module.replace(".", "/")
    packages = [folder / "__init__.py" for folder in (stem, *stem.parents) if root / CODE_FOLDER in folder.parents]
    paths = (stem.with_suffix(".py"), *packages)
    return tuple(path for path in paths if path.is_file() and not is_plumbing(str(path.relative_to(root))))


def closure(module: str, root: Path = ROOT) -> list[Path]:
    """The files of `module` and of every project module that it imports, sorted; no plumbing, and nothing that plumbing imports."""
    seen: set[Path] = set()
    queue = [module]
    while queue:
        for path in _run_by(queue.pop(), root):
            if path not in seen:
                seen.add(path)
                queue += _module(path)[1]
    return sorted(seen)


def resources(module: str, root: Path = ROOT) -> list[Path]:
    """The files beside a step's program that are not code (pages, templates, styles, what is compiled), sorted.

    One that modules of the folder name counts for the steps that these take part in; any other for all steps of the folder.
    """
    folder = (root / CODE_FOLDER / module.replace(".", "/")).parent
    every = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    beside = sorted(path for path in every if path.suffix != ".py" and not path.name.startswith("."))
    if not beside:  # as in most folders, whose modules need not be read for it
        return []
    texts = {path: path.read_text(encoding="utf-8") for path in every if path.suffix == ".py"}
    taking_part = set(closure(module, root))
    naming = {path: {each for each, text in texts.items() if path.name in text} for path in beside}
    return [path for path in beside if not naming[path] or naming[path] & taking_part]


@cache
def code(module: str, root: Path = ROOT) -> dict[str, str]:
    """A hash of the meaning of each module in a module's import closure, and of each resource beside it, by path.

    `plumbing` is the number that declares by hand what no hash shows (chain/unhashed.py).
    """
    found = {"plumbing": str(VERSION)}
    found |= {str(path.relative_to(root)): _module(path)[0] for path in closure(module, root)}
    for path in resources(module, root):
        found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


NAMING = {
    PLAN: model_registry.BASE_STEP,
    RUNG: model_registry.BASE_STEP,
    STAGE: PUBLIC,
}  # the step whose keys name a step's files, where it is another
NAMED = {
    "yaml": content_hash.named_by,
    "manifests": content_hash.manifests,
    "function": content_hash.imported,
}  # the files behind a path, by the schema's kind


def files(step: str, config: dict[str, Any]) -> dict[str, str]:
    """What the files hold that the step's settings name (schema: `file: true`), by key and path.

    Raises ConfigError, naming the key, for a file that is not there.
    """
    found: dict[str, str] = {}
    for key, name, kind in named_files(config, step):
        try:
            named = NAMED.get(kind, content_hash.below)(Path(name))
            found |= {f"{key} {_shown(path, name, config['data'])}": content_hash.content(path) for path in named}
        except OSError as error:
            raise ConfigError(f"{key} is {name!r}: {error.strerror or error}{run_folder.search_hint(name)}") from error
    return found


def _shown(path: Path, name: str, data: str) -> str:
    """The path of a file that a key names by `name`: below `{data}` if it is named so, so that a folder that moves reruns nothing."""
    inside = from_folder(name, data) != name and path.is_relative_to(data)
    return f"{DATA}/{path.relative_to(data)}" if inside else str(path)


def settings(step: str, config: dict[str, Any], task: str = "") -> dict[str, Any]:
    """The tracked settings of a step's task under a complete config: those that its program gets, its own and what it is told of others.

    task: the model, of a step that has a task for each.
    """
    return {**tracked(model_registry.applied(config, step, task), step), **step_inputs.of(step, config, task)}


def naming(step: str, config: dict[str, Any], task: str) -> dict[str, Any]:
    """The config whose keys name a step's files."""
    found = model_registry.applied(config, step, task)
    if step == RUNG and task:
        name, _ = halving.parsed(task)
        return {**found, "pretrain": {**found["pretrain"], "train": halving.section(config, name)}}
    if step != SETS:
        return found
    section = found["decontaminate"]
    return {**found, "decontaminate": {**section, "index": {**section["index"], **step_inputs.searching(config)}}}


ENDS = (LAST, COMMON)  # what report.compare reads of every variant


def ends(config: dict[str, Any], memo: dict[str, str]) -> dict[str, str]:
    """A digest of the fingerprint of every variant's report, and of each evaluation on the common text, by `variant/step model`.

    memo: of main's fingerprints; a project puts those of the other variants there too.
    """
    found = {}
    for name in ("main", *config["variants"]):
        own, held = (config, memo) if name == "main" else (of_variant(config, name), dict[str, str]())
        for step in ENDS:
            for model in models(step, own) if is_used(step, own) else []:
                key = f"{name}/{step} {model}".rstrip()
                if key not in memo:
                    memo[key] = fingerprint(step, own, held, model)
                found[key] = digest(memo[key])
    return found


def fingerprint(step: str, config: dict[str, Any], memo: dict[str, str] | None = None, task: str = "") -> str:
    """Canonical JSON of {step, config, code, files, upstream} for a step under a complete config.

    Paths in the folder `data` begin with `{data}`: what their files hold counts, and not where it lies (see `for_program`).
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
            for name, model in upstream(step, config, task)
            if name != FETCH  # a copy on the disk, which changes no document
        }
        above |= {
            f"{name} of main": digest(
                fingerprint(name, shared_reference.told(config), shared_reference.memo(config, memo))
            )
            for name in common(step, config)
        }
        if step == COMPARE_ALL:
            above = ends(config, memo)
        memo[key] = canonical(
            {
                "step": step,
                "config": with_paths(step, settings(step, config, task), partial(from_folder, data=config["data"])),
                "code": code(program_of(step)),
                # The plan of a training reads the checkpoint that it starts from.
                "files": files(NAMING.get(step, step), naming(step, config, task)),
                "upstream": above,
            }
        )
    return memo[key]


def for_program(fingerprint: str, data: str) -> str:
    """A fingerprint as a step's program gets it: with the folder that `{data}` stands for, if there is any."""
    return (
        canonical({**json.loads(fingerprint), "data": data})
        if f'"{DATA}' in fingerprint or f" {DATA}" in fingerprint
        else fingerprint
    )
