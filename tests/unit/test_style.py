"""Names say what happens or what comes back, and conditions are plain: what of that a program can see."""

from __future__ import annotations

import ast
import re
from functools import cache

from crawl2llm.core.root import ROOT

CODE = ROOT / "scripts" / "crawl2llm"
# Participles by themselves: nobody knows what was done, or to what.
IRREGULAR = (
    "begun|bound|built|chosen|dealt|done|drawn|driven|felt|forgotten|found|frozen|given|gone|grown|heard|held|hidden|kept|known|laid|led|left"
    "|lent|lost|made|meant|met|paid|put|said|seen|sent|shown|spelt|spent|spoken|stuck|sworn|taken|taught|thrown|told|understood|wound|written"
)
PARTICIPLE = re.compile(rf"_*(?:[a-z]*[a-z]ed|{IRREGULAR})")
NO_PARTICIPLES = {"seed", "speed", "need", "feed", "embed", "exceed"}
OF_LIBRARIES = {"put"}  # transformers calls a streamer's `put`
DECLARES_KEYS = {"setting", "optional", "section"}  # of core/settings.py: a key is called as users know it
VAGUE = {"found", "one", "own", "said", "told", "asked"}
MOST_OF_ONE_WORD = 0.2  # the share of functions whose name is one word: `read`, `close`, `rows` …
MOST_LAMBDAS = 5  # in a dictionary


class Reader(ast.NodeVisitor):
    """Collects from a module: functions, variables that are set, and conditions that are hard to read; each with its place."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.functions: list[tuple[str, str]] = []
        self.variables: list[tuple[str, str]] = []
        self.tangles: list[str] = []
        self.comprehensions = 0

    def place(self, node: ast.expr | ast.stmt | ast.arg) -> str:
        return f"{self.module}:{node.lineno}"

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not node.name.startswith("__"):
            self.functions.append((self.place(node), node.name))
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> None:
        self.variables.append((self.place(node), node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        value = node.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in DECLARES_KEYS:
            self.visit(value)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.variables.append((self.place(node), node.id))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self.variables.append((self.place(node), node.attr))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)  # its variable lives for a line
        for condition in node.ifs:
            self.visit(condition)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse)):
            self.tangles.append(f"{self.place(node)} a conditional in a conditional")
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        if sum(isinstance(value, ast.Lambda) for value in node.values) > MOST_LAMBDAS:
            self.tangles.append(f"{self.place(node)} a dictionary of lambdas")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Mult):
            for text, times in ((node.left, node.right), (node.right, node.left)):
                is_text = isinstance(text, ast.JoinedStr) or (
                    isinstance(text, ast.Constant) and isinstance(text.value, str | bytes)
                )
                if is_text and (isinstance(times, ast.Compare | ast.BoolOp) or ast.unparse(times).startswith("bool(")):
                    self.tangles.append(f"{self.place(node)} a text times a condition")
        self.generic_visit(node)


@cache
def readers() -> list[Reader]:
    read = []
    for path in sorted(CODE.rglob("*.py")):
        read.append(Reader(str(path.relative_to(ROOT))))
        read[-1].visit(ast.parse(path.read_text(encoding="utf-8")))
    return read


def test_no_function_is_called_by_a_bare_participle() -> None:
    known = NO_PARTICIPLES | OF_LIBRARIES
    names = [row for reader in readers() for row in reader.functions]
    bare = [f"{place} {name}" for place, name in names if PARTICIPLE.fullmatch(name) and name.strip("_") not in known]
    assert not bare, "name what happens or what comes back: " + ", ".join(bare)


def test_few_functions_have_names_of_one_word() -> None:
    names = [name for reader in readers() for _, name in reader.functions]
    single = [name for name in names if "_" not in name.strip("_")]
    assert len(single) <= MOST_OF_ONE_WORD * len(names), f"{len(single)} of {len(names)}"


def test_variables_name_the_thing() -> None:
    vague = [f"{place} {name}" for reader in readers() for place, name in reader.variables if name in VAGUE]
    assert not vague, "it has a name: " + ", ".join(vague)


def test_conditions_are_plain() -> None:
    tangles = [line for reader in readers() for line in reader.tangles]
    assert not tangles, ", ".join(tangles)
