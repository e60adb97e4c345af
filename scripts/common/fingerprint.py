"""What decides a step's bytes, as one string: its settings, its code and everything upstream.

The string is a rule's only parameter. Snakemake reruns a task when it changes, and the program reads its settings
from it, so a program cannot depend on a key that is not tracked.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from scripts.common.config import ROOT, tracked
from scripts.common.steps import STEPS, needs, tasks


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, so that the order of YAML keys does not matter."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(text: str) -> str:
    """The first 16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _module(path: Path) -> tuple[str, tuple[str, ...]]:
    """(meaning, imported project modules) of a source file: comments, docstrings and layout do not count.

    A module that says `__tracked__ = False` (logging, progress) counts for nothing: it cannot change what is written.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    imports: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names if alias.name.startswith("scripts.")]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}:{node.lineno}: write `from scripts.…`; relative imports are not followed")
            if (node.module or "").split(".")[0] == "scripts":
                imports += [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    untracked = any(
        isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") == "__tracked__"
        and getattr(node.value, "value", True) is False
        for node in tree.body
    )
    return "" if untracked else ast.dump(tree), () if untracked else tuple(dict.fromkeys(imports))


def closure(module: str, root: Path = ROOT) -> list[Path]:
    """The files of `module` and of every project module that it imports, sorted."""
    seen: set[Path] = set()
    queue = [module]
    while queue:
        stem = root / queue.pop().replace(".", "/")
        # Importing a module runs the __init__.py of its packages.
        packages = [folder / "__init__.py" for folder in (stem, *stem.parents) if root in folder.parents]
        for path in (stem.with_suffix(".py"), *packages):
            if path.is_file() and path not in seen:
                seen.add(path)
                queue += _module(path)[1]
    return sorted(seen)


def resources(module: str, root: Path = ROOT) -> list[Path]:
    """The files beside a step's program that are not code (pages, templates, styles), sorted."""
    folder = (root / module.replace(".", "/")).parent
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and not path.name.startswith(".")
    )


@cache
def code(module: str, root: Path = ROOT) -> str:
    """A hash of the meaning of a module's import closure, and of the resources beside the module."""
    parts = [f"{path.relative_to(root)} {_module(path)[0]}" for path in closure(module, root)]
    for path in resources(module, root):
        parts.append(f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return digest("\n".join(parts))


def fingerprint(step: str, config: dict[str, Any], memo: dict[str, str] | None = None, task: str = "") -> str:
    """Canonical JSON of {step, config, code, upstream} for a step under a complete config.

    `upstream` is a hash over the fingerprints of the steps it needs, so that a change anywhere above reaches it even
    when the run in between was interrupted. task: the model, for `evaluate.model`; other steps' tasks need the same.
    """
    memo = {} if memo is None else memo
    key = f"{step} {task}"
    if key not in memo:
        upstream = [
            fingerprint(name, config, memo, model)
            for name in needs(step, config, task)
            for model in (tasks(name, config) if STEPS[name].per == "model" else [""])
        ]
        memo[key] = canonical(
            {
                "step": step,
                "config": tracked(config, step),
                "code": code(f"scripts.{step}"),
                "upstream": digest("\n".join(upstream)),
            }
        )
    return memo[key]
