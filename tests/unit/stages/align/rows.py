"""Files of rows, and what align.pairs makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crawl2llm.stages.align import pairs as align_pairs
from tests.unit.stages.finetune import tiny


def made_from(
    rows: list[dict[str, Any]], folder: Path, questions: Path, name: str = "rows.jsonl", **entry: Any
) -> Path:
    """The manifest of align.pairs over a file of these rows."""
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tiny.config("align.pairs", files=[{"path": str(file), **entry}])
    out = folder / "pairs/manifest.json"
    assert align_pairs.main(["--config", config, "--pairs", str(questions), "--manifest", str(out)]) == 0
    return out
