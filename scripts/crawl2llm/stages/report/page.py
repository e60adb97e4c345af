"""The page: a Jinja template with every value escaped, its styles inside, and filters that write numbers with units."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crawl2llm.core.console import escape_controls, singular_or_plural
from crawl2llm.formats.run_records import finite_number

HERE = Path(__file__).parent
NOTHING = "–"
NARROW = "\N{NO-BREAK SPACE}"  # between a number and its unit


def format_integer(value: Any) -> str:
    """`1234567` → `1,234,567`; `–` if there is no number."""
    amount = finite_number(value)
    return NOTHING if amount is None else f"{amount:,.0f}"


def format_short(value: Any) -> str:
    """`1234567` → `1.23 M`, four digits and fewer as they are."""
    amount = finite_number(value)
    if amount is None:
        return NOTHING
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(amount) >= size and abs(amount) >= 1e4:
            return f"{amount / size:.3g}{NARROW}{unit}"
    return f"{amount:,.0f}"


def format_significant(value: Any, digits: int = 4) -> str:
    """A measured number with `digits` significant digits: `3.14159` → `3.142`."""
    amount = finite_number(value)
    if amount is None:
        return NOTHING
    if amount != 0 and not 1e-4 <= abs(amount) < 1e7:
        return f"{amount:.{digits - 1}e}"
    whole = len(str(int(abs(amount)))) if abs(amount) >= 1 else 0
    if whole >= digits:
        return f"{amount:,.0f}"
    return f"{amount:,.{digits}g}"


def format_signed(value: Any, digits: int) -> str:
    """A difference with its sign: `-1.25` with one digit → `−1.2`; `–` if there is no number."""
    amount = finite_number(value)
    return NOTHING if amount is None else f"{amount:+.{digits}f}".replace("-", "−")


def format_percent(value: Any, digits: int = 1) -> str:
    """A share: `0.254` → `25.4 %`."""
    amount = finite_number(value)
    return NOTHING if amount is None else f"{amount * 100:.{digits}f}{NARROW}%"


def format_bytes(value: Any) -> str:
    """Bytes in decimal units: `1234567` → `1.23 MB`."""
    amount = finite_number(value)
    if amount is None:
        return NOTHING
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(amount) >= unit:
            return f"{amount / unit:.3g}{NARROW}{name}".replace("-", "−")
    return f"{amount:,.0f}{NARROW}B".replace("-", "−")


def format_memory(value: Any) -> str:
    """Bytes of memory in binary units: `1610612736` → `1.50 GiB`."""
    amount = finite_number(value)
    if amount is None:
        return NOTHING
    return f"{amount / 2**30:.2f}{NARROW}GiB" if amount >= 2**30 else f"{amount / 2**20:,.0f}{NARROW}MiB"


def format_duration(value: Any) -> str:
    """Seconds: `7.25` → `7.2 s`, `75` → `1 min 15 s`, `4000` → `1 h 07 min`."""
    amount = finite_number(value)
    if amount is None:
        return NOTHING
    if amount < 59.95:
        return f"{amount:.1f}{NARROW}s"
    minutes, seconds = divmod(round(amount), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{NARROW}h {minutes:02d}{NARROW}min" if hours else f"{minutes}{NARROW}min {seconds:02d}{NARROW}s"


FILTERS = {
    "int": format_integer,
    "short": format_short,
    "sig": format_significant,
    "percent": format_percent,
    "size": format_bytes,
    "memory": format_memory,
    "duration": format_duration,
    "form": singular_or_plural,
}


def clean_value(value: Any) -> Any:
    """A value as it is shown: a text without control characters, which no HTML may have, and a terminal that shows the file obeys."""
    if isinstance(value, Markup):
        return Markup(escape_controls(value))  # noqa: S704 - as it was
    return escape_controls(value) if isinstance(value, str) else value


def template_environment() -> Environment:
    """Templates of this folder, with every value escaped and clean (see clean_value)."""
    templates = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clean_value,
    )
    templates.filters |= FILTERS
    return templates


def csp_hash(text: str) -> str:
    """What a content security policy calls an inline script or style, by its SHA-256 (CSP level 2, section 4.2)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render(context: dict[str, Any], figures: dict[str, Any], template: str = "report.html.j2") -> str:
    """A page as HTML. `context` is escaped wherever it is shown; `figures` are our own SVG and are not."""
    style = Markup((HERE / "style.css").read_text(encoding="utf-8"))  # noqa: S704 - a file of this project
    return template_environment().get_template(template).render(context, style=style, figures=as_markup(figures))


def html_id(text: str) -> str:
    """A text as an id in a page: other marks than letters, digits, `_` and `-` are `-`, since an id may stand among others in a list."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)


def as_markup(figures: Any) -> Any:
    """The figures marked as markup; matplotlib and `figures.themed_svg` have escaped the text in them."""
    if isinstance(figures, dict):
        return {name: as_markup(value) for name, value in figures.items()}
    return None if figures is None else Markup(figures)  # noqa: S704
