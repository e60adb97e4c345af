"""The example of docs/filters/plugins.md, as it is shown there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/filters/plugins.md"
EXAMPLE, CONFIG = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:2]
