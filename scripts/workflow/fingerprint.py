"""What decides a step's bytes, as one string: its settings, its code and everything upstream.

The string is a rule's only parameter. Snakemake reruns a task when it changes, and the program reads its settings
from it, so a program cannot depend on a key that is not tracked.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from scripts.compress import quantize_tools
from scripts.ingest import sources
from scripts.models import registry
from scripts.models.registry import QUANTIZE_STEP
from scripts.workflow import contents
from scripts.workflow.cache import Cache
from scripts.workflow.config import ROOT, ConfigError, named_files, tracked
from scripts.workflow.manifest import canonical, digest
from scripts.workflow.plumbing import VERSION, is_plumbing
from scripts.workflow.steps import (
    CALIBRATE,
    DECONTAMINATE,
    EVALUATION,
    EXEMPTING,
    FETCH,
    ITEMS,
    LAST,
    LIST,
    MASKED,
    MIX,
    PLAN,
    PUBLIC,
    SETS,
    STAGE,
    SYNTHESIZE,
    filters,
    searched,
    skipped_by,
    upstream,
)
from scripts.workflow.trees import lookup

# By the hash of a source's bytes and of those of this file, which says what a meaning is.
CACHE = Path(".snakemake/meanings.json")
OWN = Path(__file__).read_bytes()
# To parse all modules takes longer than the rest of a plan, and every new folder would.
_cached = Cache(CACHE, shared=ROOT / "scripts/workflow/__pycache__" / CACHE.name)


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
            imports += [alias.name for alias in node.names if alias.name.startswith("scripts.")]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}:{node.lineno}: write `from scripts.…`; relative imports are not followed")
            if (node.module or "").split(".")[0] == "scripts":
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
    stem = root / module.replace(".", "/")
    packages = [folder / "__init__.py" for folder in (stem, *stem.parents) if root in folder.parents]
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
    folder = (root / module.replace(".", "/")).parent
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

    `plumbing` is the number that declares by hand what no hash shows (scripts/workflow/plumbing.py).
    """
    found = {"plumbing": str(VERSION)}
    found |= {str(path.relative_to(root)): _module(path)[0] for path in closure(module, root)}
    for path in resources(module, root):
        found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


NAMING = {PLAN: registry.BASE_STEP, STAGE: PUBLIC}  # the step whose keys name a step's files, where it is another
NAMED = {
    "yaml": contents.named_by,
    "manifests": contents.manifests,
    "function": contents.imported,
}  # the files behind a path, by the schema's kind


def files(step: str, config: dict[str, Any]) -> dict[str, str]:
    """What the files hold that the step's settings name (schema: `file: true`), by key and path.

    Raises ConfigError, naming the key, for a file that is not there.
    """
    found: dict[str, str] = {}
    for key, name, kind in named_files(config, step):
        try:
            named = NAMED.get(kind, contents.below)(Path(name))
            found |= {f"{key} {path}": contents.content(path) for path in named}
        except OSError as error:
            where = "" if Path(name).is_absolute() else f" (paths are relative to {Path.cwd()})"
            raise ConfigError(f"{key} is {name!r}: {error.strerror or error}{where}") from error
    return found


def settings(step: str, config: dict[str, Any], task: str = "") -> dict[str, Any]:
    """The tracked settings of a step's task under a complete config: those that its program gets.

    task: the model, of a step that has a task for each. The report gets the models too, in the order of the registry; pretrain.plan
    and pretrain.mix the settings of pretrain.train; evaluate.items which held-out text evaluate.model scores; evaluate.stage what
    evaluate.public asks; the steps of a filter that keep documents whatever they measure, the sources of these (`skip_filters`), which
    ingest.extract is not told; heuristics.calibrate the thresholds that hold for the reference; the pairs for fine-tuning and alignment
    the settings of the filter `pii`, where the run uses it; an export what its card says of sources and languages, and the models that
    it is made from; a model that is calibrated the packages of the quantizers' environment.
    """
    found = tracked(registry.applied(config, step, task), step)
    if step == CALIBRATE:
        found["select"] = {
            key: value for key, value in tracked(config, "heuristics.select").items() if key != "languages"
        }
    if step in EXEMPTING:
        return {**found, "skipped_by": skipped_by(step, config)}
    if step in MASKED:  # a run may mask, search for evaluation sets, or both
        if "pii" in config["filters"]:
            found = {**found, "pii": {name: tracked(config, f"pii.{name}") for name in ("score", "select")}}
        if DECONTAMINATE in filters(config):
            found = {**found, DECONTAMINATE: {"overlap_max": config[DECONTAMINATE]["select"]["overlap_max"]}}
        return found
    if step == LIST:
        return {**found, **sources.listing(config)}
    if step == FETCH:
        return {**found, **sources.fetching(config)}
    if step == ITEMS:
        return {**found, "heldout": {key: lookup(config, EVALUATION)[key] for key in ("max_tokens", "seed")}}
    if step == registry.EXPORT_STEP:
        return {**found, **registry.told(config), "lineage": registry.lineage(config, task)}
    if step == QUANTIZE_STEP and registry.calibrates(config, task):
        return {**found, "tools": quantize_tools.version()}
    if step == STAGE:
        return {**found, **{key: lookup(config, PUBLIC)[key] for key in ("presets", "data", "hub", "limit", "seed")}}
    if step == SETS:
        return {**found, **searching(config), "hub": lookup(config, PUBLIC)["hub"]}
    if step in (MIX, PLAN):
        return {**found, "train": tracked(config, registry.BASE_STEP)}
    return {**found, "models": registry.listed(config)} if step == LAST else found


def naming(step: str, config: dict[str, Any], task: str) -> dict[str, Any]:
    """The config whose keys name a step's files."""
    found = registry.applied(config, step, task)
    if step != SETS:
        return found
    section = found["decontaminate"]
    return {**found, "decontaminate": {**section, "index": {**section["index"], **searching(config)}}}


def searching(config: dict[str, Any]) -> dict[str, Any]:
    """`tasks` and `data` of decontaminate.index; where they are null those of evaluate.public, so that to name these reruns nothing."""
    tasks, data = searched(config), lookup(config, SETS)["data"]
    data = lookup(config, PUBLIC)["data"] if data is None else data
    return {"tasks": tasks, "data": data if tasks else []}


def fingerprint(step: str, config: dict[str, Any], memo: dict[str, str] | None = None, task: str = "") -> str:
    """Canonical JSON of {step, config, code, files, upstream} for a step under a complete config.

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
        memo[key] = canonical(
            {
                "step": step,
                "config": settings(step, config, task),
                "code": code(f"scripts.{step}"),
                # The plan of a training reads the checkpoint that it starts from.
                "files": files(NAMING.get(step, step), naming(step, config, task)),
                "upstream": above,
            }
        )
    return memo[key]
