"""What the report says of the pages of report.inspect: where they are, and what people's marks say of the filters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crawl2llm.chain.steps import INSPECT
from crawl2llm.formats.run_records import Run


def table(run: Run, page: Path) -> dict[str, Any]:
    """`link` from the page's folder to the index, None if report.inspect did not run; `marks`, of `mark_words.marks_for_page`, None
    where the config names none.

    page: of the report.
    """
    manifest = next((candidate for candidate in run.manifests_of(INSPECT) if candidate.path), None)
    if manifest is None:
        return {"link": None, "marks": None}
    link = Path(os.path.relpath(manifest.folder / "index.html", page.absolute().parent)).as_posix()
    return {"link": link, "marks": manifest.summary.get("marks")}
