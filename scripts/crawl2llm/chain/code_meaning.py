"""What a source file means: its syntax tree without comments, docstrings and layout, and which modules of the project it imports."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

PACKAGE = "crawl2llm"


def parse_source(source: str, path: Path) -> tuple[str, list[str]]:
    """(meaning, imported project modules) of a source: comments, docstrings and layout do not count.

    A module that is named when the program runs may be any that the name allows: `import_module(f"crawl2llm.filters.{name}.select")` is of
    `crawl2llm.filters.*.select`.
    """
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
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            imports += _pattern_of_modules(node.args[0])
    remove_docstrings(tree)
    return tree_text(tree), list(dict.fromkeys(imports))


def _pattern_of_modules(name: ast.expr) -> list[str]:
    """The modules of the project that a name with parts that are not known stands for, as one pattern; none of another name."""
    parts = name.values if isinstance(name, ast.JoinedStr) else []
    pattern = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)
    return [pattern] if pattern.startswith(f"{PACKAGE}.") else []


def tree_text(node: Any) -> str:
    """A syntax tree as text. Unlike ast.dump, the same under every version of Python: what is empty is left out."""
    if isinstance(node, ast.AST):
        fields = (f"{name}={tree_text(value)}" for name, value in ast.iter_fields(node) if value not in (None, []))
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(map(tree_text, node))}]"
    return repr(node)


def remove_docstrings(tree: ast.AST) -> None:
    """Take the docstrings out of a syntax tree."""
    for node in ast.walk(tree):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
