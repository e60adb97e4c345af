"""pretrain.train.start_from is looked at before a run: a tokenizer that is there and up to date decides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.workflow.conftest import ROOT, TINY, environment
from tests.workflow.forked import snakemake


def said(folder: Path, tree: dict[str, Any], config: Path) -> str:
    """What a dry run under the config `tree` ends with."""
    config.write_text(yaml.safe_dump(tree, sort_keys=False))
    done = snakemake(
        "--snakefile", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles/local"), "--directory", str(folder),
        "--configfile", str(config), "--dry-run", cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert (done.returncode == 0) == ("This was a dry-run" in done.stdout)
    return done.stdout[-2000:]


def test_another_vocabulary_is_refused_by_the_plan(complete: Path, tmp_path: Path) -> None:
    """Unless the tokenizer is to be trained again, which may give this one."""
    model, config = tmp_path / "model", tmp_path / "config.yaml"
    shutil.copytree(complete / "results/main/pretrain/train/model", model)
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["pretrain"]["train"]["start_from"] = str(model)
    assert "This was a dry-run" in said(complete, tree, config)

    text = json.loads((model / "tokenizer.json").read_text())
    vocabulary = text["model"]["vocab"]
    text["model"]["vocab"] = dict(zip(vocabulary, reversed(vocabulary.values()), strict=True))
    (model / "tokenizer.json").write_text(json.dumps(text))
    words = f"error: pretrain.train.start_from is {str(model)!r}: its tokenizer has another vocabulary than this run's"
    assert words in said(complete, tree, config)

    tree["quality"]["select"]["keep_fraction"] = 0.5  # far above the tokenizer
    assert "This was a dry-run" in said(complete, tree, config)
