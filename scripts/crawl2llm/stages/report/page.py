"""The page: a Jinja template with every value escaped, its styles inside, and filters that write numbers with units."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crawl2llm.core.console import clean, form
from crawl2llm.formats.run_records import number

HERE = Path(__file__).parent
NOTHING = "–"
NARROW = "\N{NO-BREAK SPACE}"  # between a number and its unit


def integer(value: Any) -> str:
    """`1234567` → `1,234,567`; `–` where there is no number."""
    found = number(value)
    return NOTHING if found is None else f"{found:,.0f}"


def short(value: Any) -> str:
    """`1234567` → `1.23 M`, four digits and fewer as they are."""
    found = number(value)
    if found is None:
        return NOTHING
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(found) >= size and abs(found) >= 1e4:
            return f"{found / size:.3g}{NARROW}{unit}"
    return f"{found:,.0f}"


def significant(value: Any, digits: int = 4) -> str:
    """A measured number with `digits` significant digits: `3.14159` → `3.142`."""
    found = number(value)
    if found is None:
        return NOTHING
    if found != 0 and not 1e-4 <= abs(found) < 1e7:
        return f"{found:.{digits - 1}e}"
    whole = len(str(int(abs(found)))) if abs(found) >= 1 else 0
    if whole >= digits:
        return f"{found:,.0f}"
    return f"{found:,.{digits}g}"


def signed(value: Any, digits: int) -> str:
    """A difference with its sign: `-1.25` with one digit → `−1.2`; `–` where there is no number."""
    found = number(value)
    return NOTHING if found is None else f"{found:+.{digits}f}".replace("-", "−")


def percent(value: Any, digits: int = 1) -> str:
    """A share: `0.254` → `25.4 %`."""
    found = number(value)
    return NOTHING if found is None else f"{found * 100:.{digits}f}{NARROW}%"


def size(value: Any) -> str:
    """Bytes in decimal units: `1234567` → `1.23 MB`."""
    found = number(value)
    if found is None:
        return NOTHING
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(found) >= unit:
            return f"{found / unit:.3g}{NARROW}{name}".replace("-", "−")
    return f"{found:,.0f}{NARROW}B".replace("-", "−")


def memory(value: Any) -> str:
    """Bytes of memory in binary units: `1610612736` → `1.50 GiB`."""
    found = number(value)
    if found is None:
        return NOTHING
    return f"{found / 2**30:.2f}{NARROW}GiB" if found >= 2**30 else f"{found / 2**20:,.0f}{NARROW}MiB"


def duration(value: Any) -> str:
    """Seconds: `7.25` → `7.2 s`, `75` → `1 min 15 s`, `4000` → `1 h 07 min`."""
    found = number(value)
    if found is None:
        return NOTHING
    if found < 59.95:
        return f"{found:.1f}{NARROW}s"
    minutes, seconds = divmod(round(found), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{NARROW}h {minutes:02d}{NARROW}min" if hours else f"{minutes}{NARROW}min {seconds:02d}{NARROW}s"


FILTERS = {
    "int": integer,
    "short": short,
    "sig": significant,
    "percent": percent,
    "size": size,
    "memory": memory,
    "duration": duration,
    "form": form,
}


def clean_value(value: Any) -> Any:
    """A value as it is shown: a text without control characters, which no HTML may have, and a terminal that shows the file obeys."""
    if isinstance(value, Markup):
        return Markup(clean(value))  # noqa: S704 - as it was
    return clean(value) if isinstance(value, str) else value


def environment() -> Environment:
    """Templates of this folder, with every value escaped and clean (see clean_value)."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clean_value,
    )
    made.filters |= FILTERS
    return made


def hashed(text: str) -> str:
    """What a content security policy calls an inline script or style, by its SHA-256 (CSP level 2, section 4.2)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render(context: dict[str, Any], figures: dict[str, Any], template: str = "report.html.j2") -> str:
    """A page as HTML. `context` is escaped wherever it is shown; `figures` are our own SVG and are not."""
    style = Markup((HERE / "style.css").read_text(encoding="utf-8"))  # noqa: S704 - a file of this project
    return environment().get_template(template).render(context, style=style, figures=trusted(figures))


def identifier(text: str) -> str:
    """A text as an id in a page: other marks than letters, digits, `_` and `-` are `-`, since an id may stand among others in a list."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)


def trusted(figures: Any) -> Any:
    """The figures marked as markup; matplotlib and `figures.themed` have escaped the text in them."""
    if isinstance(figures, dict):
        return {name: trusted(value) for name, value in figures.items()}
    return None if figures is None else Markup(figures)  # noqa: S704
