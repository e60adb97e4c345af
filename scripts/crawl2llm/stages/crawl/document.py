"""Render modules as HTML pages with pydoc. Runs as a process of its own, because importing a module runs its code.

`python -m crawl2llm.stages.crawl.document JOB OUT`: JOB is a JSON file {modules, documented, max_bytes, replace}; OUT gets one JSON line
`{"begin": module}` before a module is imported and `{"module", "html"}` or `{"module", "error"}` after it, so that whoever
started this process sees at which module it died.
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
import os
import pydoc
import random
import re
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

SITE = "docs.demo.example"
# `<object at 0x7f12ab34cd56>`: where in memory an object lies differs from run to run.
ADDRESS = re.compile(r"\b(at|@) 0x[0-9a-fA-F]{6,16}")
ANCHOR = re.compile(r'<a href="(?!https?:|#)([^"]*?)\.html')
UNDERLINE = re.compile(r"^([=\-~^*])\1{2,}$")
LITERAL = re.compile(r"^(\s|>>>|\.\. |[-*+•] |\d+[.)] |:\w+|\|)")


class HTMLDoc(pydoc.HTMLDoc):
    """pydoc's HTML with the layout of a documentation site: sections, headings, paragraphs and `<pre>` for tables and spaces.

    pydoc lays out by nested tables and `&nbsp;`, which a main-content extractor takes for navigation.
    """

    declaration = ""  # name and signature of the class that is documented, as they are
    escaped = ""  # and as pydoc hands them to `markup`

    def heading(self, title: str, extras: str = "") -> str:
        """The page's heading; `extras`, links to the source file, is left out."""
        return f"<h1>{title}</h1>\n"

    def section(
        self,
        title: str,
        cls: str,
        contents: str,
        width: int = 6,
        prelude: str = "",
        marginalia: str | None = None,
        gap: str = "",
    ) -> str:
        """A section with its heading, what introduces it, and its contents."""
        level = "h3" if cls == "title" else "h2"
        return f'<section class="{cls}">\n<{level}>{title}</{level}>\n{prelude}\n{contents}\n</section>\n'

    def bigsection(self, title: str, *args: Any) -> str:
        """A section of a whole module; lists of modules are navigation."""
        section_html = self.section(title, *args)
        return f"<nav>{section_html}</nav>" if args[0] == "pkg-content" else section_html

    def multicolumn(self, list: list[Any], format: Callable[[Any], str]) -> str:
        """A list, one item a line."""
        return "<ul>\n" + "".join(f"<li>{format(item)}</li>\n" for item in list) + "</ul>"

    def formattree(self, tree: Any, modname: str, parent: Any = None) -> str:
        """No tree of classes: their headings name their bases."""
        return ""

    def repr(self, object: Any) -> str:
        """The value of a plain constant; of anything else its type, for containers show what differs from run to run."""
        if isinstance(object, bool | int | float | complex | str | bytes | None):
            return str(super().repr(object))
        return self.escape(type(object).__name__)

    def docclass(self, object: Any, name: str | None = None, *rest: Any) -> str:
        """A class. pydoc escapes its signature and hands it to `markup`, which escapes it again: so `markup` undoes the first escape."""
        try:
            signature = str(inspect.signature(object))
        except (ValueError, TypeError):
            signature = ""
        name = name or object.__name__
        self.declaration = f"{name}{signature}\n\n"
        self.escaped = f"{name}{self.escape(signature)}\n\n"
        return str(super().docclass(object, name, *rest))

    def preformat(self, text: str) -> str:
        """Text whose layout `markup` takes care of."""
        return self.escape(text)

    def markup(  # type: ignore[override]
        self,
        text: str,
        escape: Callable[[str], str] | None = None,
        funcs: dict[str, str] = {},  # noqa: B006 - pydoc's own signature
        classes: dict[str, str] = {},  # noqa: B006
        methods: dict[str, str] = {},  # noqa: B006
    ) -> str:
        """A docstring as paragraphs, headings and preformatted blocks, with pydoc's links."""
        if self.escaped and text.startswith(self.escaped):
            text = self.declaration + text.removeprefix(self.escaped)
        return "\n".join(
            f"<{tag}>{super(HTMLDoc, self).markup(block, escape, funcs, classes, methods)}</{tag}>"
            for tag, block in docstring_blocks(text.expandtabs())
        )


def docstring_blocks(text: str) -> list[tuple[str, str]]:
    """Split a docstring at its blank lines into ("p" | "pre" | "h4", text).

    A block with an indented line, a prompt, a list or a field is preformatted; a line with an underline is a heading.
    """
    parts: list[tuple[str, str]] = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = [line.rstrip() for line in block.strip("\n").split("\n")]
        if len(lines) > 1 and UNDERLINE.match(lines[1].strip()):
            parts.append(("h4", lines[0].strip()))
            lines = lines[2:]
        if not any(lines):
            continue
        literal = any(LITERAL.match(line) for line in lines)
        if literal and parts and parts[-1][0] == "pre":
            parts[-1] = ("pre", parts[-1][1] + "\n\n" + "\n".join(lines))
        else:
            parts.append(("pre" if literal else "p", "\n".join(lines)))
    return parts


def install_rules(documented: frozenset[str]) -> None:
    """Make pydoc document each thing once: on the page of the module that it says it belongs to, without inherited members.

    documented: every module that has a page. What every object has from `object` without a word of its own is left out as well.
    pydoc asks module-level functions for both, so these are replaced.
    """
    bare = {name: inspect.getdoc(value) for name, value in vars(object).items()}
    visible, attributes = pydoc.visiblename, pydoc.classify_class_attrs

    def visiblename(name: str, all: Any = None, obj: Any = None) -> bool:
        if inspect.ismodule(obj):
            if name.startswith("__"):
                return False
            value = getattr(obj, name, None)
            home = getattr(value, "__module__", None) if inspect.isclass(value) or inspect.isroutine(value) else None
            if isinstance(home, str) and home != obj.__name__ and home in documented:
                return False
        return bool(visible(name, all, obj))

    def is_own_attribute(cls: type, name: str, home: Any, value: Any) -> bool:
        special = name.startswith("__") and not inspect.isroutine(value)
        plain = name in bare and inspect.getdoc(value) in {None, bare[name]}
        return home is cls and not special and not plain

    def classify_class_attrs(cls: Any) -> list[Any]:
        return [
            attribute
            for attribute in attributes(cls)
            if is_own_attribute(cls, attribute[0], attribute[2], attribute[3])
        ]

    pydoc.visiblename = visiblename
    pydoc.classify_class_attrs = classify_class_attrs  # type: ignore[assignment]


def clean_page(page: str, replace: list[list[str]]) -> str:
    """`page` without what differs from run to run or from place to place, and without pydoc's hard spaces."""
    for old, new in [*replace, ["<br>&nbsp;", ""], ["&nbsp;", " "]]:
        page = page.replace(old, new)
    return ADDRESS.sub(r"\1 0x…", page)


def page_url(module: str) -> str:
    """The URL of a module's page. A host name has no underscores (RFC 1123, section 2.1), so `_` becomes `-`."""
    host = module.split(".")[0].lower().replace("_", "-").strip("-")
    return f"https://{host}.{SITE}/{module}.html"


def link_to_page(match: re.Match[str]) -> str:
    """pydoc's links are flat (`json.decoder.html`); each package has a host of its own."""
    return f'<a href="{page_url(match[1])}'


def render_module(module: ModuleType, replace: list[list[str]]) -> tuple[str, str]:
    """(first line of the docstring, pydoc's HTML) of a module; raises what its objects' attributes raise."""
    page = ANCHOR.sub(link_to_page, HTMLDoc().docmodule(module))
    summary = (pydoc.getdoc(module).strip().split("\n") or [""])[0]
    return clean_page(html.escape(summary), replace), clean_page(page, replace)


def main(argv: list[str]) -> None:
    """Render every module of the job; see the module's docstring."""
    job = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    install_rules(frozenset(job["documented"]))
    sys.argv = ["document"]  # the default of many a `main`
    # SciPy draws examples for its docstrings from a generator that NumPy seeds with `secrets`.
    secrets.randbits = random.Random(0).getrandbits  # type: ignore[assignment]  # noqa: S311
    with Path(argv[1]).open("a", encoding="utf-8") as out:

        def write_line(**line: Any) -> None:
            out.write(json.dumps(line, ensure_ascii=True) + "\n")
            out.flush()

        for name in job["modules"]:
            write_line(begin=name)
            try:
                module = importlib.import_module(name)
            except BaseException as error:  # a module may raise anything, SystemExit too
                write_line(module=name, error="import_failed", detail=repr(error)[:200])
                continue
            try:
                summary, page = render_module(module, job["replace"])
            except Exception as error:
                write_line(module=name, error="render_failed", detail=repr(error)[:200])
            else:
                if len(page) > job["max_bytes"]:
                    write_line(module=name, error="page_too_large", detail=f"{len(page)} characters")
                else:
                    write_line(module=name, html=page, summary=summary)
    # Threads that a module has started must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
