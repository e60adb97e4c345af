"""Say which steps an edit of a module reruns: `python -m tools.reruns PATH…`; for a folder, of each module in it.

An edit of comments, docstrings or layout reruns nothing. What depends on these steps starts again too; most steps end at once if their
settings and their input turn out to be the same. A module that decides no byte of a result reruns nothing
(`scripts/crawl2llm/chain/unhashed.py` says why).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.chain.fingerprint import import_closure
from crawl2llm.chain.steps import STEPS, program_of
from crawl2llm.chain.unhashed import is_plumbing
from crawl2llm.core.console import print_line
from crawl2llm.core.root import ROOT

CODE = ROOT / "scripts" / "crawl2llm"


@cache
def steps_by_module() -> dict[str, list[str]]:
    """Module, as a path below the project's root → the steps whose results it decides."""
    steps_of: dict[str, list[str]] = {}
    for step in STEPS:
        for name in import_closure(program_of(step)):
            steps_of.setdefault(name, []).append(step)
    return steps_of


def rerun_text(path: Path) -> str:
    """Which steps run again if this module is edited, in words."""
    name = str(path.relative_to(ROOT))
    steps = [] if is_plumbing(name) else steps_by_module().get(name, [])
    other_steps = [step for step in STEPS if step not in steps]
    if not steps or not other_steps:
        return "every step" if steps else "nothing"
    return ", ".join(steps) if len(steps) <= len(other_steps) else f"every step except {', '.join(other_steps)}"


def modules_at(path: Path) -> Iterator[Path]:
    """The module, or those in the folder. Raises ValueError if the path is not a module of the import package or a folder in it."""
    full_path = path.resolve()
    if not full_path.is_relative_to(CODE):
        raise ValueError(f"{path} is not in {CODE.relative_to(ROOT)}: only an edit there can rerun a step by itself")
    modules = sorted(full_path.rglob("*.py")) if full_path.is_dir() else [full_path]
    if not modules or not all(module.is_file() and module.suffix == ".py" for module in modules):
        raise ValueError(f"{path} is no module and no folder with modules")
    yield from modules


def main(argv: list[str] | None = None) -> int:
    """Print a line for each module."""
    parser = command_parser("python -m tools.reruns", __doc__, "scripts/crawl2llm/filters/dedup/verify.py")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a module or a folder of scripts/crawl2llm")
    try:
        modules = [module for path in parser.parse_args(argv).paths for module in modules_at(path)]
    except ValueError as error:
        return print_error(str(error))
    for module in modules:
        print_line(f"{module.relative_to(ROOT)}: {rerun_text(module)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
