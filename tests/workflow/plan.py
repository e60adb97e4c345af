"""What a run would do, without doing it: Snakemake's own dry run, in this process or another."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.workflow.conftest import ROOT, environment
from tests.workflow.forked import snakemake

BLOCK = re.compile(r"^(?:local)?rule (\w+):$(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
TRIGGERS = ("params", "input")  # as in the profiles


def name_of(rule: str, wildcards: dict[str, str]) -> str | None:
    """A job as `stage.step`, with its model where the step has a task for each; None for the target rule."""
    if rule == "all":
        return None
    stage, step = rule.split("_", 1)
    return f"{stage}.{step}[{wildcards['model']}]" if "model" in wildcards else f"{stage}.{step}"


def planned(folder: Path, tree: dict[str, Any], root: Path = ROOT) -> set[str]:
    """The steps of which at least one task would run in `folder` under the config `tree`."""
    return here(folder, tree) if root == ROOT else elsewhere(folder, tree, root)


def named(output: str) -> set[str]:
    """The steps in the output of a dry run."""
    found = set()
    for rule, block in BLOCK.findall(output):
        wildcards = dict(re.findall(r"(\w+)=([\w-]+)", "".join(re.findall(r"wildcards: (.*)", block))))
        found.add(name_of(rule, wildcards))
    return {name for name in found if name}


_parsed: dict[tuple[str, int, int, int], tuple[str, int, dict[int, int]]] = {}


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Have Snakemake parse each file of rules once as long as it is the same: half of a plan's time."""
    import snakemake.workflow as using

    parse = using.parse

    def once(path: Any, workflow: Any, linemap: dict[int, int], rulecount: int) -> tuple[str, int]:
        name = path.get_path_or_uri(secret_free=True)
        about = Path(name).stat()
        key = name, about.st_mtime_ns, about.st_size, rulecount
        if key not in _parsed:
            lines: dict[int, int] = {}
            _parsed[key] = (*parse(path, workflow, linemap=lines, rulecount=rulecount), lines)
        text, number, lines = _parsed[key]
        linemap |= lines
        return text, number

    using.parse = once
    try:
        yield
    finally:
        using.parse = parse


@contextlib.contextmanager
def restored_process() -> Iterator[None]:
    """What Snakemake and the rules change of this process is undone at the end."""
    before, path, variables = Path.cwd(), list(sys.path), dict(os.environ)
    handlers = list(logging.getLogger().handlers)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(variables)
        logging.getLogger().handlers[:] = handlers


@contextlib.contextmanager
def open_workflow(folder: Path, tree: dict[str, Any]) -> Iterator[Any]:
    """Snakemake's workflow API of a dry run in this process."""
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings, StorageSettings

    handle, name = tempfile.mkstemp(suffix=".yaml")
    os.close(handle)
    config = Path(name)
    config.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    try:
        with restored_process(), parsed_once(), SnakemakeApi(OutputSettings(dryrun=True)) as api:
            yield api.workflow(
                resource_settings=ResourceSettings(cores=2),
                config_settings=ConfigSettings(configfiles=[config]),
                storage_settings=StorageSettings(),
                snakefile=ROOT / "Snakefile",
                workdir=folder,
            )
    finally:
        config.unlink()


def here(folder: Path, tree: dict[str, Any]) -> set[str]:
    """A dry run in this process, through Snakemake's API: more than a second for the first, then some 100 ms each."""
    return named(dry_run(folder, tree)[0])


def dry_run(folder: Path, tree: dict[str, Any]) -> tuple[str, Any]:
    """What a dry run in this process prints, and its workflow with the plan."""
    output = io.StringIO()
    with (
        contextlib.redirect_stderr(output),
        contextlib.redirect_stdout(output),
        open_workflow(folder, tree) as workflow,
    ):
        from snakemake.settings.enums import RerunTrigger
        from snakemake.settings.types import DAGSettings

        triggers = frozenset({RerunTrigger.PARAMS, RerunTrigger.INPUT})
        workflow.dag(DAGSettings(rerun_triggers=triggers)).execute_workflow(executor="dryrun")
    text = output.getvalue()
    # A dry run always says one of the two; without, its output was not caught and an empty set would say nothing.
    assert "This was a dry-run" in text or "Nothing to be done" in text, text
    return text, workflow._workflow


def elsewhere(folder: Path, tree: dict[str, Any], root: Path) -> set[str]:
    """A dry run of another checkout, in a process of its own."""
    config = root / "planned.yaml"
    config.write_text(json.dumps(tree), encoding="utf-8")
    done = snakemake(
        "--snakefile", str(root / "Snakefile"),
        "--profile", str(root / "profiles" / "local"), "--directory", str(folder),
        "--configfile", str(config), "--dry-run",
        cwd=root, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return named(done.stdout + done.stderr)
