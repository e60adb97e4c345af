"""The real workflow on a real cluster: its files are those of a run on one machine, whatever the cluster does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT, Drive, own_profile, slurm, until
from tests.unit.training.tiny_published import write_published
from tests.workflow.conftest import TINY, differences, run, snapshot

GPU_STAGES = ("pretrain", "finetune", "evaluate", "report")
LONG = 280  # steps of the tiny model: ten seconds and more
TRAINING = {"steps": LONG, "validate_every": 120}


class Workflow(Drive):
    """The real Snakefile in a folder where a local run has ended with tokenize.encode; the rest is the cluster's."""

    snakefile = ROOT / "Snakefile"

    def __init__(
        self, folder: Path, complete: Path, site: dict[str, Any], remove: Sequence[str] = (), **train: Any
    ) -> None:
        shutil.copytree(complete, folder, symlinks=True)
        for stage in (*remove, *GPU_STAGES):
            shutil.rmtree(folder / "results/main" / stage)
        for name in ("checkpoints", "logs"):
            shutil.rmtree(folder / name)
        super().__init__(folder, {})
        config = yaml.safe_load(TINY.read_text(encoding="utf-8"))
        config["pretrain"]["train"] |= {"device": "cpu"} | train
        (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.profile = own_profile(folder.with_name(f"{folder.name}-site"), **site)

    def gpu_partition(self, name: str) -> None:
        """Send the rules with GPUs to another partition."""
        path = self.profile / "partitions.yaml"
        path.write_text(re.sub(r"^  (h100|low|fragile):$", f"  {name}:", path.read_text("utf-8"), flags=re.MULTILINE))

    def step(self) -> int:
        """The step of the newest checkpoint of pretraining."""
        names = [path.name for path in self.folder.glob("checkpoints/*/step-*")]
        return max((int(name.removeprefix("step-")) for name in names), default=0)

    def weights(self) -> dict[str, bytes]:
        """The pre-trained model and its losses, by file."""
        return {name: body for name, body in snapshot(self.folder).items() if "pretrain/train/" in name}

    def sleep(self) -> None:
        """Stop the ranks of the training, so that a fast machine does not end it before what comes next; SLURM's signals wake them."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                module = (process / "cmdline").read_bytes().split(b"\0")[1:3]
                if module == [b"-m", b"crawl2llm.stages.pretrain.train"] and (process / "cwd").samefile(self.folder):
                    os.kill(int(process.name), signal.SIGSTOP)

    def slurm_log(self, rule: str) -> str:
        """What SLURM caught of the rule's only job."""
        (path,) = self.folder.glob(f"logs/slurm/rule_{rule}/*/*.log")
        return path.read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="module")
def workflow(
    cluster: Cluster, complete: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Workflow]]:
    """workflow(name, site, **train) makes a run: values of its profile, and of its config's pretrain.train."""
    base, made = tmp_path_factory.mktemp("workflow"), []

    def make(name: str, site: dict[str, Any], **train: Any) -> Workflow:
        made.append(Workflow(base / name, complete, site, **train))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def meet_the_limit(workflow: Callable[..., Workflow]) -> Workflow:
    """A training that met its job's time limit and has ended.

    SLURM counts limits in minutes and looks at them every half a minute: on a busy machine a job's start alone may take a minute, on
    a fast one the whole training less. So the limit comes when some steps are done, and until then the ranks sleep.
    """
    made = workflow(
        "long", {"gpus": 2, "warning": 180}, **TRAINING, checkpoint_every=100_000, log_every=40, wandb="offline"
    )
    made.start("--until", "pretrain_train", "--retries=0")
    log = made.folder / "logs/main/pretrain/train.log"
    until("some steps", lambda: log.exists() and "step 80/" in log.read_text(encoding="utf-8"), 480)
    made.sleep()
    (job,) = made.queue()
    hours, minutes, _ = re.search(r"RunTime=(\d+):(\d+):(\d+)", slurm("scontrol", "show", "job", job)).groups()  # type: ignore[union-attr]
    slurm("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * int(hours) + int(minutes) + 3}")
    until("the job is queued again", lambda: "asked to queue the job again" in made.slurm_log("pretrain_train"), 240)
    slurm("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    made.finish(900)
    return made


def break_in_every_way(workflow: Callable[..., Workflow], cluster: Cluster) -> Workflow:
    """A training that has suffered it all and has ended."""
    made = workflow("broken", {"gpus": 2}, **TRAINING, checkpoint_every=20)
    made.gpu_partition("low")
    made.start("--until", "pretrain_train")
    until("some steps", lambda: made.step() >= 40)
    slurm(
        "sbatch", "--chdir=/", "-p", "urgent", "--gres=gpu:h100:8", "--time=1", "--output=/dev/null", "--wrap=sleep 2"
    )
    until("more steps, after the urgent job", lambda: made.step() >= 120, 480)
    (job,) = made.queue()
    assert "Restarts=1 " in slurm("scontrol", "show", "job", job)

    made.sleep()
    made.send(signal.SIGKILL)
    made.end()
    made.gpu_partition("fragile")
    slurm("scontrol", "update", "NodeName=f2", "State=DRAIN", "Reason=test")
    made.start("--until", "pretrain_train")
    until("a job of the second start", lambda: made.queue() not in ([], [job]), 120)
    assert f"job {job} (pretrain_train main, running) is left from a run that was killed: cancelled" in made.output
    second = made.step()
    until("more steps, in the second start", lambda: made.step() >= second + 40, 480)
    slurm("scontrol", "update", "NodeName=f2", "State=RESUME")
    cluster.crash("f1")
    third = made.step()
    until("more steps, on the other node", lambda: made.step() >= third + 40, 480)
    (job,) = made.queue()
    assert "Restarts=1 " in (facts := slurm("scontrol", "show", "job", job)) and "NodeList=f2" in facts
    cluster.revive("f1")

    slurm("scancel", job)
    made.finish(900)
    assert "Error in rule pretrain_train" in made.output
    return made


@pytest.fixture(scope="module")
def trainings(
    workflow: Callable[..., Workflow], cluster: Cluster
) -> Iterator[tuple[Future[Workflow], Future[Workflow]]]:
    """Two such trainings, begun: most of each is waiting, so that other tests run beside them."""
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit(meet_the_limit, workflow), pool.submit(break_in_every_way, workflow, cluster)


@pytest.fixture(scope="module")
def unbroken(workflow: Callable[..., Workflow]) -> Path:
    """The same training on this machine, without SLURM."""
    folder = workflow("unbroken", {}, **TRAINING).folder
    run(folder, "--until", "pretrain_train", config=folder / "config.yaml")
    return folder


def test_from_pretrain_to_the_report(trainings: object, workflow: Callable[..., Workflow], complete: Path) -> None:
    """Beside the long trainings, which have begun."""
    tail = workflow("tail", {"gpus": 2})
    tail.start().finish()
    assert differences(snapshot(tail.folder), snapshot(complete)) == []
    done = set(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", tail.output))
    assert done >= {"pretrain_train", "finetune_pairs", "finetune_train", "evaluate_model", "report_render"}
    assert not any(rule.startswith(("crawl", "dedup", "tokenize")) for rule in done)


def test_a_published_model_is_tuned_and_evaluated(workflow: Callable[..., Workflow], tmp_path: Path) -> None:
    """Read, encoded, tuned by LoRA on two processes of an H100 node and evaluated, each in a job of its own; without a base model."""
    made = workflow("published", {"gpus": 2})
    config = yaml.safe_load((made.folder / "config.yaml").read_text(encoding="utf-8"))
    tuned = {"from": "tiny", "step": "finetune.train", "adapter": "lora", "engine": "torch", "processes": 2}
    config["models"] = {"tiny": {"path": str(write_published(tmp_path / "tiny"))}, "sft": tuned}
    config["pretrain"]["train"]["enabled"] = False
    (made.folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    made.start().finish()
    done = set(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", made.output))
    assert done >= {"pretrain_published", "tokenize_reencode", "finetune_train", "evaluate_model", "report_render"}
    assert "pretrain_train" not in done
    (job,) = (path.stem for path in made.folder.glob("logs/slurm/rule_finetune_train/*/*.log"))
    assert re.search(r"Partition=h100 .*NodeList=h[12]", slurm("scontrol", "-o", "show", "job", job))
    results = made.folder / "results/main"
    summary = Manifest.read(results / "finetune/train/sft.manifest.json").summary
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"]
    text = {
        name: json.loads((results / f"evaluate/model/{name}.evaluation.json").read_text())["heldout_text"]
        for name in ("tiny", "sft")
    }
    assert text["tiny"]["tokens"] == text["sft"]["tokens"] > 0


def test_two_nodes_train_the_weights_of_one(
    workflow: Callable[..., Workflow], complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process on each of two nodes, reading staged copies of the tokens, and two processes on one: the same bytes."""
    monkeypatch.setenv("NODE_DISK", str(tmp_path))
    pair = workflow("pair", {"gpus": 1, "nodes": 2}, nodes=2, processes=1, stage_to="$NODE_DISK/staged")
    pair.start("--until", "pretrain_train").finish()
    reference = {name: body for name, body in snapshot(complete).items() if name in pair.weights()}
    assert any(name.endswith("model.safetensors") for name in reference)
    assert differences(pair.weights(), reference) == []
    assert "2 × cpu" in (pair.folder / "logs/main/pretrain/train.log").read_text(encoding="utf-8")
    assert list((tmp_path / "staged").rglob("train/*/*.bin"))
    (job,) = (path.stem for path in pair.folder.glob("logs/slurm/rule_pretrain_train/*/*.log"))
    facts = slurm("scontrol", "show", "job", job)
    assert "NumNodes=2 " in facts and "NodeList=h[1-2]" in facts


def test_longer_than_the_time_limit(trainings: tuple[Future[Workflow], Future[Workflow]], unbroken: Path) -> None:
    """Stopped and queued again, without one of Snakemake's retries; the curve of an unbroken run."""
    long_run = trainings[0].result()
    log = long_run.slurm_log("pretrain_train")
    stops = [int(step.replace(",", "")) for step in re.findall(r"stopped by a signal after step ([\d,]+);", log)]
    assert stops and stops == sorted(set(stops)) and stops[-1] < LONG
    assert re.findall(r"resuming after step ([\d,]+) of", log) == [f"{step:,}" for step in stops]
    assert log.count("SLURM is asked to queue the job again") == len(stops)
    assert "Error in rule" not in long_run.output and "TIMEOUT" not in long_run.output

    rows = [json.loads(line) for line in (unbroken / "results/main/pretrain/train/losses.jsonl").open()]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, LONG + 1))
    assert differences(snapshot(long_run.folder), snapshot(unbroken)) == []

    # One log, one curve, one run of W&B, in as many parts.
    log = (long_run.folder / "logs/main/pretrain/train.log").read_text(encoding="utf-8")
    logged = [int(step.replace(",", "")) for step in re.findall(r"step ([\d,]+)/[\d,]+, loss", log)]
    assert logged == list(range(40, LONG + 1, 40))
    (folder,) = long_run.folder.glob("checkpoints/*/")
    parts = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    assert len(parts) == len(stops) + 1 and {path.name for path in parts} == {f"run-{folder.name}.wandb"}
    charted = [
        record.history.step.num for path in parts for record in wandb_records(path) if record.HasField("history")
    ]
    assert sorted(set(charted)) == logged and charted == sorted(charted)


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of a W&B file: protocol buffers in LevelDB's log format, behind a head of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    body, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(body):
        if 32768 - at % 32768 < 7:  # a piece never begins in the last 6 bytes of a block
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", body, at)
        parts, at = parts + body[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def test_a_training_that_is_broken_in_every_way(
    trainings: tuple[Future[Workflow], Future[Workflow]], unbroken: Path
) -> None:
    """Preempted, its driver killed, its node without power, cancelled: the bytes of a training that nothing happened to."""
    made = trainings[1].result()
    log = (made.folder / "logs/main/pretrain/train.log").read_text(encoding="utf-8")
    assert len(re.findall(r"resuming after step ([\d,]+) of", log)) == 4
    assert differences(snapshot(made.folder), snapshot(unbroken)) == []


@pytest.mark.long
def test_full_quota(workflow: Callable[..., Workflow], complete: Path, tmp_path: Path) -> None:
    """A file system that is full in the middle of a stage: nothing half-written counts, and with space it resumes."""
    run = workflow("quota", {}, remove=("corpus", "tokenize"))
    results = run.folder / "results"
    moved = results.rename(tmp_path / "results")
    results.mkdir()
    size = 1024 * (sum(-(-path.stat().st_size // 4096) * 4 for path in moved.rglob("*") if path.is_file()) + 60)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "crawl2llm", str(results)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of one's own cannot be mounted here")
    try:
        shutil.copytree(moved, results, dirs_exist_ok=True)
        assert run.start("--until", "corpus_write", "--retries=0").end() == 1
        log = (run.folder / "logs/main/corpus/write/00000.log").read_text(encoding="utf-8")
        assert re.search(r"corpus\.write 00000: error: .*No space left on device", log)
        assert "No space left on device" in run.output
        assert not list(results.glob("main/corpus/write/*.manifest.json"))
        subprocess.run([*mount[:4], f"remount,size={size + (64 << 20)}", str(results)], check=True)
        run.start("--until", "corpus_write").finish()
        mine = {name: body for name, body in snapshot(run.folder).items() if "/corpus/" in name}
        assert differences(mine, {name: body for name, body in snapshot(complete).items() if "/corpus/" in name}) == []
    finally:
        subprocess.run(["umount", "--lazy", str(results)], check=True)
