"""Writes schemas/config.schema.json from the settings; editors complete and check a config by it. A test fails if it drifts.

Nothing of the project reads it. Beside the keywords of JSON Schema 2020-12 it has the marks of core/settings.py, which editors ignore.

python -m tools.editor_schema
"""

from __future__ import annotations

import json
from typing import Any

from crawl2llm.chain.config_schema import is_section, schema
from crawl2llm.core.root import ROOT

FILE = ROOT / "schemas" / "config.schema.json"


def schema_text(node: dict[str, Any], indent: str = "") -> str:
    """A section as JSON, a line for each key that it holds."""
    if not is_section(node):
        return json.dumps(node, ensure_ascii=False)
    words = json.dumps({word: value for word, value in node.items() if word != "properties"}, ensure_ascii=False)
    keys = [
        f"{indent}  {json.dumps(key)}: {schema_text(child, indent + '  ')}" for key, child in node["properties"].items()
    ]
    return f'{words[:-1]}, "properties": {{\n' + ",\n".join(keys) + f"\n{indent}}}}}"


def main() -> None:
    """Write the file."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(schema_text(schema()) + "\n", encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
