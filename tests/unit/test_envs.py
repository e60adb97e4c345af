"""The environments of the rules and the lock name the same versions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ENVS = Path(__file__).resolve().parents[2] / "envs"


def pins(lines: list[str]) -> dict[str, str]:
    return dict(line.strip().lower().split("==") for line in lines if "==" in line and not line.startswith("#"))


LOCK = pins((ENVS / "lock.txt").read_text().splitlines())


@pytest.mark.parametrize("path", sorted(ENVS.glob("*.yaml")), ids=lambda path: path.stem)
def test_environment_equals_lock(path: Path) -> None:
    parts = yaml.safe_load(path.read_text())["dependencies"]
    packages = next(part["pip"] for part in parts if isinstance(part, dict))
    assert all("==" in name for name in packages)
    assert {name: LOCK.get(name) for name in pins(packages)} == pins(packages)


def test_lock_is_installed() -> None:
    """What runs here is what the lock says."""
    from importlib.metadata import version

    wrong = {name: version(name) for name in LOCK if version(name).split("+")[0] != LOCK[name]}
    assert wrong == {}


def test_nothing_is_pinned_twice() -> None:
    dev = pins((ENVS / "lock-dev.txt").read_text().splitlines())
    assert not dev.keys() & LOCK.keys()
