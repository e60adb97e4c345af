"""The code of a plug-in: the modules beside its file that it imports, and which part of the file each step runs.

A filter of a plug-in is one file for both steps, and an edit of a rule must not measure all documents again. So its statements are dealt
out: those that measure (the class, and what it uses at any depth) are of `score`, `rules` and what it uses of `select`, all else of both.
A class of settings counts for nothing, as an edit of a `settings.py` does: its values are in the fingerprint.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath

from crawl2llm.chain.code_meaning import PACKAGE, remove_docstrings, tree_text
from crawl2llm.core.manifest import digest

# Names by which a module reads its own others without naming them: all of it is then of both steps.
READS_BY_NAME = {"globals", "vars", "eval", "exec", "__import__", "import_module"}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Sources = Mapping[PurePosixPath, bytes]  # by path in the plug-in's folder


def module_files(name: str) -> list[PurePosixPath]:
    """The files in the plug-in's folder that a dotted name in it may be of, with those of the packages above it."""
    parts = name.split(".") if name else []
    packages = [PurePosixPath(*parts[:number], "__init__.py") for number in range(len(parts) + 1)]
    return [*packages, PurePosixPath(*parts).with_suffix(".py")] if parts else packages


def imported_names(tree: ast.AST, path: PurePosixPath, package: str) -> Iterator[str]:
    """The dotted names, in the plug-in's folder, that a file there imports from it. package: the name that the folder is imported by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}."))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                folder = path.parent.parts[: len(path.parent.parts) - node.level + 1]
                module = ".".join([*folder, *filter(None, [module])])
            elif module == package or module.startswith(f"{package}."):
                module = module.removeprefix(package).removeprefix(".")
            else:
                continue
            yield module
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)


def collect_sources(
    first: PurePosixPath, package: str, read: Callable[[PurePosixPath], bytes | None]
) -> dict[PurePosixPath, bytes]:
    """The file of a filter, and what it imports of its folder at any depth. read: the bytes of a file there, None if there is none.

    Raises SyntaxError, with the path, and ValueError for a file that is no text.
    """
    sources: dict[PurePosixPath, bytes] = {}
    queue = [first, PurePosixPath("__init__.py")]
    while queue:
        path = queue.pop()
        if path in sources or (content := read(path)) is None:
            continue
        sources[path] = content
        tree = ast.parse(content, filename=str(path))
        queue += [file for name in imported_names(tree, path, package) for file in module_files(name)]
    return sources


def project_imports(statements: Collection[ast.AST]) -> list[str]:
    """The modules of this project that statements import."""
    names: list[str] = []
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names += [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
    return [name for name in dict.fromkeys(names) if name.startswith(f"{PACKAGE}.")]


def _defined_names(statement: ast.stmt) -> set[str]:
    """The names that a definition, an import or a plain assignment gives; none of any other statement, which is of both steps."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        names = {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
        return set() if "*" in names else names
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    if not all(isinstance(target, ast.Name) for target in targets):
        return set()
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _used_names(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _reachable_statements(roots: Collection[str], statements: Collection[ast.stmt]) -> set[ast.stmt]:
    """The statements that define these names, or what those use, at any depth."""
    reached, names, queue = set[ast.stmt](), set[str](), list(roots)
    while queue:
        if (name := queue.pop()) in names:
            continue
        names.add(name)
        for statement in statements:
            if name in _defined_names(statement) and statement not in reached:
                reached.add(statement)
                queue += _used_names(statement)
    return reached


def statements_by_step(
    content: bytes, settings: Collection[str], measuring: str, schema: str, rules: str
) -> dict[str, list[ast.stmt]]:
    """`score` and `select` → the statements of a filter's file that each runs, without docstrings and what settings declare.

    settings: the names of its classes of settings. measuring, schema and rules: the names of what measures, its columns, and its rules.
    """
    tree = ast.parse(content)
    remove_docstrings(tree)
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name in settings:
            statement.body = [node for node in statement.body if not isinstance(node, ast.AnnAssign | ast.Pass)]
    statements = [
        each for each in tree.body if not (isinstance(each, ast.ClassDef) and each.name in settings and not each.body)
    ]
    if any(isinstance(node, ast.Name) and node.id in READS_BY_NAME for node in ast.walk(tree)):
        return {"score": statements, "select": statements}
    others = [statement for statement in statements if not _defined_names(statement)]
    both = {name for statement in others for name in _used_names(statement)}
    reached = {
        "score": _reachable_statements([measuring, schema, *both], statements),
        "select": _reachable_statements([rules, *both], statements),
    }
    alone = {step: reached[step] - reached[other] for step, other in (("score", "select"), ("select", "score"))}
    return {
        step: [statement for statement in statements if statement not in alone[other]]
        for step, other in (("score", "select"), ("select", "score"))
    }


def meaning_of(statements: Collection[ast.stmt]) -> str:
    """A hash of what statements mean."""
    return digest(tree_text(list(statements)))


def meaning_of_file(content: bytes) -> str:
    """A hash of what a whole file means."""
    tree = ast.parse(content)
    remove_docstrings(tree)
    return digest(tree_text(tree))
