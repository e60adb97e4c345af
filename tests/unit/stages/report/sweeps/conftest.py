"""A sweep's evaluations as manifests on the disk, drawn at random with effects that are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps.groups import group_settings
from crawl2llm.stages.report.sweeps.read import Variant

OPTIONS = CompareSettings(resamples=200)
MODEL = "pretrain.train.model"


def write_manifest(path: Path, step: str, files: dict[str, list[Any]], **more: Any) -> Manifest:
    """A manifest with files of JSON Lines."""
    paths = []
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        paths.append(path.parent / name)
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Manifest(step, "mark", **more).write(path, paths)


class Sweep:
    """Variants with `effects` on bits per byte by setting, `seeds` of each. sizes: (parameters, tokens) by setting."""

    def __init__(
        self, folder: Path, effects: dict[str, float], seeds: int = 3, sizes: dict[str, tuple[int, int]] | None = None
    ) -> None:
        self.folder, self.chance = folder, np.random.default_rng(7)
        self.configs: dict[str, Any] = {}
        self.variants: dict[str, Variant] = {}
        self.base = self.chance.normal(2.0, 0.4, 40)
        for name, effect in effects.items():
            own = self.chance.normal(0, 0.01, 40)
            size = (sizes or {}).get(name, (30_000, 40_000))
            for seed in range(seeds):
                label = name
                if seed:
                    label = f"seed-{seed}" if name == "main" else f"{name}-seed-{seed}"
                train = {"seed": seed, "learning_rate": 0.001 + effect, "model": {"layers": size[0] // 10_000}}
                self.configs[label] = {
                    "filters": ["dedup", "quality"] if name != "without-dedup" else ["quality"],
                    "pretrain": {"train": {**train, "steps": size[1]}},
                    "variants": {"x": {}} if label == "main" else {},
                    "sweep": {"seed_keys": ["pretrain.train.seed"]},
                }
                self.variants[label] = self.variant(label, effect + self.chance.normal(0, 0.004), own, size)

    def variant(self, label: str, effect: float, own: Any, size: tuple[int, int]) -> Variant:
        """The manifests of one training."""
        folder = self.folder / "results" / label
        bits = self.base + own + effect + self.chance.normal(0, 0.002, 40)
        text = [
            {
                "document": f"d{n}",
                "source": "web" if n % 2 else "<b>books</b>",
                "bytes": 500,
                "nats": float(x) * 500 * np.log(2),
            }
            for n, x in enumerate(bits)
        ]
        items = [
            {
                "task": task,
                "id": f"{task}{n}",
                "document": f"d{n % 40}",
                "right": bool(self.chance.random() < 0.5 - effect),
                "bits_per_byte": float(2 + effect + n / 60),
            }
            for task in ("ending", "cloze")
            for n in range(60)
        ]
        curve = [
            {"step": s, "tokens": s * 1000, "bits_per_byte": float(np.mean(bits)) + 3 / s, "by_source": {}}
            for s in (1, 2, 4)
        ]
        tasks = {"ending": {"chance": 0.25}, "cloze": {"chance": 0.25}}
        common = write_manifest(
            folder / "evaluate/common/base.manifest.json",
            "evaluate.common",
            {"base.heldout.jsonl": text, "base.items.jsonl": items, "base.curve.jsonl": curve},
            summary={"documents": 40, "bytes": 20_000, "set": "abc123", "tasks": tasks},
        )
        training = write_manifest(
            folder / "pretrain/train/manifest.json",
            "pretrain.train",
            {"losses.jsonl": [{"step": s, "tokens": s * 1000, "bits_per_byte": 3 / s} for s in (1, 2, 4)]},
            summary={
                "parameters": {"total": size[0], "non_embedding": size[0] // 2},
                "tokens": size[1],
                "steps": 40,
                "epochs": 1.5,
                "bits_per_byte": float(np.mean(bits)) - 0.1,
            },
        )
        corpus = write_manifest(
            folder / "corpus/write/00000.manifest.json",
            "corpus.write",
            {},
            counts={"in": 120, "kept": 100 + len(label), "dropped": {"dedup": 20 - len(label)}},
        )
        tokens = write_manifest(
            folder / "tokenize/encode/00000.manifest.json",
            "tokenize.encode",
            {},
            summary={"train": {"tokens": 50_000 + 10 * len(label), "bytes": 200_000}},
        )
        answers = [
            {
                "task": "arc_easy",
                "id": f"a{n}",
                "document": f"a{n}",
                "right": bool(self.chance.random() < 0.3),
                "bits_per_byte": bits,
            }
            for n, bits in enumerate((2 + effect + self.chance.normal(0, 0.002, 50)).tolist())
        ]
        public = write_manifest(
            folder / "evaluate/public/base.manifest.json", "evaluate.public", {"base.items.jsonl": answers},
            summary={"tasks": {"arc_easy": {"chance": 0.25}}},
        )  # fmt: skip
        held = {
            "evaluate.public": {"base": public},
            "evaluate.common": {"base": common},
            "pretrain.train": {"": training},
            "corpus.write": {"00000": corpus},
            "tokenize.encode": {"00000": tokens},
        }
        return Variant(label, held, owners={"corpus.write": label, "tokenize.encode": label})

    def settings(self) -> list[Any]:
        return group_settings(self.configs, ["pretrain.train.seed"])

    def seeds(self) -> dict[str, dict[str, int]]:
        return {
            name: {"pretrain.train.seed": config["pretrain"]["train"]["seed"]} for name, config in self.configs.items()
        }


@pytest.fixture
def options() -> CompareSettings:
    return OPTIONS


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Four settings of three seeds: one much better, one worse, one as main."""
    effects = {"main": 0.0, "hot": -0.06, "without-dedup": 0.05, "warm": 0.0005}
    return Sweep(tmp_path_factory.mktemp("sweep"), effects)
