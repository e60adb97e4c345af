"""The SLURM profile without a cluster: it plans the real workflow, and every rule's needs fit a partition."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.steps import STEPS
from crawl2llm.filters.quality import tools
from tests.slurm.conftest import own_profile
from tests.unit.training.tiny_published import write_published

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "profiles" / "slurm"
GPU_RULES = {
    "quality_transformers",
    "pretrain_rung",
    "pretrain_train",
    "pretrain_continue",
    "finetune_train",
    "align_reward",
    "align_train",
    "compress_prune",
    "compress_teach",
    "compress_distil",
    "evaluate_model",
    "evaluate_public",
    "evaluate_curve",
    "evaluate_common",
    "evaluate_generate",
}
RULES = {name.replace(".", "_") for name in STEPS}


def snakemake(folder: Path, *options: str, path: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Plan the demo run in an empty folder."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    own = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": path or os.pathsep.join([own, os.environ["PATH"]]), **more}
    config = ["--configfile", str(ROOT / "config.yaml")]
    return subprocess.run(
        [*command, *config, *options], capture_output=True, text=True, timeout=900, env=environment, check=False
    )


@pytest.fixture(scope="module")
def without_slurm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH that has everything but SLURM's commands."""
    folder = tmp_path_factory.mktemp("bin")
    slurm = {"sinfo", "squeue", "sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sshare", "srun", "salloc"}
    for name in os.environ["PATH"].split(os.pathsep):
        for program in Path(name).iterdir() if Path(name).is_dir() else ():
            if program.name not in slurm and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    assert shutil.which("bash", path=str(folder)) and not shutil.which("sinfo", path=str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, without_slurm: str) -> dict[str, dict[str, str]]:
    """Rule → its first task's resources in a dry run of the real workflow, with every step, on a machine without SLURM."""
    folder = tmp_path_factory.mktemp("plan")
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    config["filters"] = list(FILTERS)
    rows = folder / "preferences.jsonl"
    rows.write_text('{"prompt": "Why?", "chosen": "So.", "rejected": "No."}\n')
    config["dedup"]["export"] = {"write": True}
    config["models"]["give"] = {"from": "sft", "step": "compress.export"}
    config["models"]["more"] = {"from": "base", "step": "pretrain.continue"}
    config["models"]["small"] = {"from": "base", "step": "compress.prune"}
    config["models"]["taught"] = {"from": "small", "step": "compress.distil", "top_k": 8}
    config["models"]["soup"] = {"from": "sft", "step": "compress.merge", "with": ["base"]}
    config["models"]["tiny"] = {"path": str(write_published(folder / "tiny"))}
    config["models"]["rm"] = {"from": "sft", "step": "align.reward"}
    config["align"] = {"pairs": {"files": [{"path": str(rows)}]}}
    config["models"]["grpo"] = {
        "from": "sft",
        "step": "align.train",
        "method": "grpo",
        "rewards": [{"reward": "exact"}],
    }
    config["ingest"]["fetch"] = {"enabled": True}
    config["ingest"]["extract"]["sources"].append(
        {"name": "web", "kind": "commoncrawl", "crawl": "CC-MAIN-2026-08", "files": 2}
    )
    for name in ("rephrase", "seed"):
        step = f"synthesize.{name}"
        config["ingest"]["extract"]["sources"].append({"name": name, "kind": "synthesized", "step": step})
        files = [{"name": "rows", "kind": "jsonl", "path": str(rows)}]
        config.setdefault("synthesize", {})[name] = {"model": "big", "seeds": {"files": files}}
    config["language"]["compare"] = {"script": True}
    config["heuristics"]["calibrate"] = {"method": "quantile"}
    classifier = folder / "classifier"  # a plan looks at names alone
    classifier.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (classifier / name).write_text("{}")
    config["quality"] |= {
        "ngrams": {"number": 3},
        "fasttext": {"models": [{"name": "hq", "path": str(rows), "label": "hq"}]},
        "transformers": {"models": [{"name": "edu", "path": str(classifier)}]},
        "lm": {"enabled": True},
    }
    programs = folder / "kenlm"
    programs.mkdir()
    for name in tools.PROGRAMS:
        (programs / name).touch(0o755)
    (programs / tools.VERSION_FILE).write_text(tools.VERSION)
    config["variants"] = {"other": {"corpus": {"split": {"seed": 1}}}}  # is compared with main, on what main holds out
    config["pretrain"]["train"]["keep_every"] = 375
    config["topics"] = {"train": {"clusters": 3}}
    config["pretrain"]["mix"] = {"phases": [{"temperature": 3}]}
    config["evaluate"] |= {
        "public": {"presets": ["copa"]},
        "curve": {"every": 375},
        "generate": {"questions": 1},
        "judge": {"model": "big"},
    }
    (folder / "every.yaml").write_text(yaml.safe_dump(config))
    every = ["--configfile", str(folder / "every.yaml")]
    where = {tools.KENLM.variable: str(programs)}
    # Trainings with phases are not judged at rungs, and pack their windows themselves: a plan of its own.
    halved = {"grid": {"pretrain.train.learning_rate": [0.001]}, "halving": {"rungs": [0.5]}}
    others_config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")) | {"sweep": halved}
    others_config["pretrain"]["train"]["packing"] = "best_fit"
    others_config["tokenize"] = {"train": {"from": {"path": str(folder / "tiny")}}}
    (folder / "halved.yaml").write_text(yaml.safe_dump(others_config))
    others = ["--configfile", str(folder / "halved.yaml")]
    said = ""
    for config_files in (every, others):
        done = snakemake(folder, "--profile", str(PROFILE), "--dry-run", *config_files, path=without_slurm, **where)
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout + done.stderr
    found: dict[str, dict[str, str]] = {}
    for match in re.finditer(r"^rule (\w+):\n(.*?)^    resources: (.*?)$", said, re.MULTILINE | re.DOTALL):
        pairs = (part.split("=", 1) for part in match.group(3).split(", ") if "=" in part)
        threads = re.search(r"^    threads: (\d+)$", match.group(2), re.MULTILINE)
        found.setdefault(match.group(1), {**dict(pairs), "threads": threads.group(1) if threads else "1"})
    return found


def test_every_step_is_planned(plan: dict[str, dict[str, str]]) -> None:
    assert set(plan) - {"all"} == RULES


@pytest.mark.parametrize("rule", sorted(RULES))
def test_only_the_rules_that_compute_on_gpus_ask_for_them(plan: dict[str, dict[str, str]], rule: str) -> None:
    needs = plan[rule]
    assert ("gres" in needs) == (rule in GPU_RULES)
    assert (int(needs.get("card", 0)) > 0) == (rule in GPU_RULES), "what --resources card=… caps"
    assert int(needs["runtime"]) > 0 and int(needs["mem_mb"]) > 0
    if rule in GPU_RULES:
        kind, model, count = needs["gres"].split(":")
        assert (kind, model) == ("gpu", "h100")
        assert int(needs["card"]) == int(count) * int(needs.get("nodes", 1))


@pytest.mark.parametrize(
    "rule",
    [
        "pretrain_rung",
        "pretrain_train",
        "pretrain_continue",
        "finetune_train",
        "align_reward",
        "align_train",
        "compress_prune",
        "compress_distil",
    ],
)
def test_training_is_told_before_its_time_limit(plan: dict[str, dict[str, str]], rule: str) -> None:
    train = plan[rule]
    seconds = re.search(r"--signal=USR1@(\d+)\b", train["slurm_extra"])
    assert seconds, "USR1@, not B:USR1@: the signal has to reach the tasks"
    assert int(seconds.group(1)) < 60 * int(train["runtime"])
    assert "--ntasks-per-node=1" in train["slurm_extra"] and train["mpi"] == ""


def test_every_rule_named_in_the_profile_exists() -> None:
    text = yaml.safe_load((PROFILE / "config.yaml").read_text(encoding="utf-8"))
    assert set(text["set-resources"]) <= RULES and set(text["set-threads"]) <= RULES


def test_retries_are_in_the_profile_only() -> None:
    """Rule-level retries are nested in the job and multiply with the profile's."""
    for path in [ROOT / "Snakefile", *(ROOT / "rules").glob("*.smk")]:
        assert not re.search(r"^\s+retries:", path.read_text(encoding="utf-8"), re.MULTILINE), path


@pytest.mark.parametrize("options", [["--dag"], ["--rulegraph"], ["--dry-run", "--sdm", "conda"]], ids=" ".join)
def test_other_ways_to_look(tmp_path: Path, options: list[str], without_slurm: str) -> None:
    if "conda" in options and not shutil.which("conda"):
        pytest.skip("conda is not installed")
    done = snakemake(tmp_path, "--profile", str(PROFILE), *options, path=without_slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pretrain_train" in done.stdout + done.stderr


def test_a_site_of_its_own(tmp_path: Path, without_slurm: str) -> None:
    """What docs/slurm.md says: copy the folder, change the values on top."""
    site = own_profile(tmp_path / "mysite", account="def-prof", gpus=8, nodes=2, gpu="a100", gpu_cap=16)
    done = snakemake(tmp_path / "run", "--profile", str(site), "--dry-run", "--printshellcmds", path=without_slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    training = next(line for line in done.stdout.splitlines() + done.stderr.splitlines() if "card=16" in line)
    assert "--profile-gpu=a100 " in done.stdout + done.stderr  # what pretrain.plan is told
    assert "gres=gpu:a100:8" in training and "nodes=2" in training and "slurm_account=def-prof" in training


def test_environment_modules(tmp_path: Path, without_slurm: str) -> None:
    """What modules.sh loads, in which order, and that a plan works in a shell that has sourced it."""
    script = f"""
        module() {{ echo "$*" >> {tmp_path}/loaded; }}
        cd {ROOT} && source profiles/slurm/modules.sh
        exec {sys.executable} -m snakemake --profile profiles/slurm --configfile config.yaml \\
            --directory {tmp_path}/run --dry-run --quiet
    """
    done = subprocess.run(
        ["bash", "-euc", script],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), without_slurm])},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = [line.split() for line in (tmp_path / "loaded").read_text(encoding="utf-8").splitlines()]
    assert [names[1].split("/")[0] for names in loaded] == ["StdEnv", "python", "cuda", "arrow"]


def test_the_image_installs_the_locked_environment(tmp_path: Path) -> None:
    """The Apptainer definition by its text: its files exist, and it installs as a person does. Built nowhere here."""
    text = (PROFILE / "crawl2llm.def").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^%(\w+)\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == {"files", "post", "environment", "test"}
    for source, target in (line.split() for line in sections["files"].strip().splitlines()):
        assert (ROOT / source).exists() and target == f"/opt/crawl2llm/{source}"
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / source, tmp_path / source)
    assert "make install" in sections["post"]
    shown = subprocess.run(["make", "--dry-run", "install"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, f"the image lacks what `make install` needs: {shown.stderr}"
    assert all(
        (tmp_path / path).exists() for path in re.findall(r"(?:-r|no-deps) ([\w./-]+)$", shown.stdout, re.MULTILINE)
    )


def test_apptainer(tmp_path: Path, without_slurm: str) -> None:
    """A plan without an image says how to build one; with it, training starts the image itself.

    A plan asks Apptainer for its version alone, so a program that says one stands in for it here.
    """
    ignored = shutil.ignore_patterns(".*", "tests", "results", "logs", "checkpoints", "*.sif")
    project = shutil.copytree(ROOT, tmp_path / "project", ignore=ignored)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "apptainer").write_text("#!/bin/sh\necho apptainer version 1.3.0\n", encoding="utf-8")
    (tools / "apptainer").chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), without_slurm])
    options = ["--sdm", "apptainer", "--apptainer-args", "--bind /project", "--printshellcmds", "--dry-run"]

    def plan() -> subprocess.CompletedProcess[str]:
        profile = ["--profile", "profiles/slurm", "--configfile", "config.yaml", "--directory", str(tmp_path / "run")]
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *profile, *options],
            capture_output=True,
            text=True,
            timeout=900,
            cwd=project,
            env={**os.environ, "PATH": path},
            check=False,
        )

    refused = plan()
    assert refused.returncode == 1
    assert "apptainer build crawl2llm.sif profiles/slurm/crawl2llm.def" in refused.stdout + refused.stderr
    (project / "crawl2llm.sif").touch()
    planned = plan()
    shown = planned.stdout + planned.stderr
    assert planned.returncode == 0, shown
    starts = re.findall(r"crawl2llm\.training\.launch .*", shown)
    assert len(starts) == 2, "pretrain_train and finetune_train"
    for line in starts:
        assert f"--image {project}/crawl2llm.sif '--image-arguments=--bind /project'" in re.sub(r" +", " ", line)
