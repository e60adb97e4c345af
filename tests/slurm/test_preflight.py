"""The preflight's arithmetic on scontrol's and squeue's own words, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.commands import preflight, status
from crawl2llm.commands.plan import training
from crawl2llm.core.manifest import Manifest
from crawl2llm.slurm import cluster, queue, trainings
from crawl2llm.slurm.cluster import Node, Partition
from crawl2llm.slurm.needs import Need

H100 = Node("h1", 96, 2_000_000, {("gpu", "h100"): 8}, usable=True)
PARTITIONS = {"h100": Partition("h100", True, 86400, None, (H100, replace(H100, name="h2")))}
FITS = Need("pretrain_train", 1, "h100", nodes=2, cpus=48, memory=480_000, runtime=1380, gres="gpu:h100:4", cards=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-00:00:00", 86400),
        ("02:03:04", 7384),
        ("10:30", 630),
        ("5", 300),
        ("2-12", 216000),
        ("UNLIMITED", None),
        ("N/A", None),
        ("", None),
    ],
)
def test_times(text: str, expected: int | None) -> None:
    assert queue.parse_seconds(text) == expected


@given(st.integers(0, 40), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_times_as_squeue_writes_them(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}-{hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours:02}:{minutes:02}:{seconds:02}"
    assert queue.parse_seconds(text) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("gres:gpu:h100:4", 4), ("gpu:2", 2), ("gpu", 1), ("gres/gpu=4", 4), ("N/A", 0), ("gres:gpu:a100:2,nvme:1", 2)],
)
def test_gpus(text: str, count: int) -> None:
    assert queue.count_gpus(text) == count


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:h100:8(S:0-1)", {("gpu", "h100"): 8}),
        ("gpu:h100:4,nvme:1", {("gpu", "h100"): 4, ("nvme", ""): 1}),
        ("gpu:2", {("gpu", ""): 2}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_gres(text: str, found: dict[tuple[str, str], int]) -> None:
    assert cluster.parse_gres(text) == found


def test_a_request_without_a_type_takes_any() -> None:
    has = {("gpu", "h100"): 4, ("gpu", "a100"): 4}
    assert cluster.has_enough_gres(has, {("gpu", ""): 8})
    assert not cluster.has_enough_gres(has, {("gpu", "h100"): 5})
    assert not cluster.has_enough_gres({}, {("gpu", ""): 1})


def test_what_fits_is_not_objected_to() -> None:
    assert preflight.need_problems(FITS, PARTITIONS) == ([], [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"partition": "h200"}, "partition 'h200' does not exist; the cluster has h100"),
        ({"partition": None}, "no partition of slurm-partition-config takes it"),
        ({"runtime": 1441}, "asks for 1441 min; partition h100 allows 1440 min"),
        ({"gres": "gpu:h200:4"}, "asks for gres gpu:h200:4; nodes of partition h100 have gpu:h100:8"),
        ({"gres": "gpu:h100:9"}, "have gpu:h100:8"),
        ({"memory": 2_000_001}, "the largest node of partition h100 has 2000000 MB"),
        ({"cpus": 97}, "the largest node of partition h100 has 96"),
        ({"nodes": 3}, "asks for 3 nodes"),
        ({"extra": "--signal=USR1@600", "runtime": 10}, "warned 600 s before a time limit of 10 min"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], words: str) -> None:
    errors, _ = preflight.need_problems(replace(FITS, **change), PARTITIONS)  # type: ignore[arg-type]
    assert len(errors) == 1 and words in errors[0] and errors[0].startswith("pretrain_train:")


def test_where_slurm_chooses_the_partition_one_has_to_fit() -> None:
    assert preflight.need_problems(replace(FITS, partition=""), PARTITIONS) == ([], [])
    errors, _ = preflight.need_problems(replace(FITS, partition="", gres="gpu:a100:4"), PARTITIONS)
    assert len(errors) == 1 and "no partition of the cluster takes it" in errors[0] and "gpu:a100:4" in errors[0]


def test_nodes_that_are_down_are_a_warning() -> None:
    down = {"h100": replace(PARTITIONS["h100"], nodes=(H100, replace(H100, name="h2", usable=False)))}
    errors, warnings = preflight.need_problems(FITS, down)
    assert not errors and "down or drained" in warnings[0]


@pytest.mark.parametrize(
    ("section", "errors", "warnings"),
    [
        ({"processes": 4, "nodes": 2}, 0, 0),
        ({"processes": 8, "nodes": 2}, 1, 0),
        ({"processes": 4, "nodes": 1}, 1, 0),
        ({"processes": 2, "nodes": 2}, 0, 1),
    ],
)
def test_the_config_starts_what_the_profile_asks_for(section: dict[str, object], errors: int, warnings: int) -> None:
    found = trainings.placement_problems([FITS], {"pretrain": {"train": section}})
    assert tuple(map(len, found)) == (errors, warnings)


def test_a_variant_is_named() -> None:
    (error,), _ = trainings.placement_problems([FITS], {"pretrain": {"train": {"processes": 8, "nodes": 2}}}, "wide")
    assert error.startswith("pretrain_train: variant wide has pretrain.train.processes: 8")


def test_processes_that_cannot_be_grouped_are_refused() -> None:
    """Two nodes of four GPUs hold no groups of three; DeepSpeed has no groups."""
    section = {
        "processes": 4,
        "nodes": 2,
        "engine": "torch",
        "zero_stage": 0,
        "optimizer": "adamw",
        "parallel": {"tensor": 3},
    }
    (error,), _ = trainings.placement_problems([FITS], {"pretrain": {"train": section}})
    assert error.startswith(
        "pretrain_train: pretrain.train.parallel is tensor 3: 3 processes work on the same windows, and 8 "
    )
    (error,), _ = trainings.placement_problems(
        [FITS], {"pretrain": {"train": {**section, "engine": "deepspeed", "parallel": {"tensor": 2}}}}
    )
    assert "set pretrain.train.engine to torch" in error


def test_a_cap_below_what_one_job_takes_is_refused() -> None:
    errors, _ = trainings.placement_problems([replace(FITS, cards=4)], {})
    assert errors == ["pretrain_train: takes 8 GPUs, more than the profile's gpu_cap"]


def test_squeue_lines_become_jobs() -> None:
    line = (
        "17|RUNNING|h100|2|96|gres:gpu:h100:4|2026-01-01T00:00:00|2026-01-01T00:01:00|1:02:03|23:00:00|h[1-2]|"
        "crawl2llm_0a1b|rule_language_score_wildcards_my_variant_00017|None|/scratch/a|b"
    )
    (job,) = queue.parse_jobs([line, line.replace("crawl2llm_", "other_"), "nonsense"])
    assert (job.rule, job.task, job.gpus, job.elapsed, job.limit) == (
        "language_score",
        "my_variant_00017",
        8,
        3723,
        82800,
    )
    assert str(job.folder) == "/scratch/a|b" and not job.has_ended


@pytest.mark.parametrize(
    ("rule", "task", "found"),
    [
        ("language_score", "my_variant_00017", ("my_variant", "language/score", "/00017")),
        ("pretrain_train", "my_variant", ("my_variant", "pretrain/train", "")),
        ("evaluate_model", "main_sft", ("main", "evaluate/model", "/sft")),
    ],
)
def test_where_a_job_writes(rule: str, task: str, found: tuple[str, str, str]) -> None:
    assert status.task_place(rule, task) == found


def test_the_log_of_a_model_whose_name_has_an_underscore(tmp_path: Path) -> None:
    """Wildcards are joined by `_`: the log that is there says where the variant's name ends."""
    there = tmp_path / "logs/my_variant/finetune/train/my_sft.log"
    there.parent.mkdir(parents=True)
    there.write_text("")
    assert status.log_of(tmp_path, "finetune_train", "my_variant_my_sft") == there
    assert status.log_of(tmp_path, "pretrain_train", "my_variant") == tmp_path / "logs/my_variant/pretrain/train.log"


def test_processes_of_one_model_are_compared_with_the_profile_too() -> None:
    need = replace(FITS, rule="finetune_train", nodes=1)
    entry = {"from": "base", "step": "finetune.train", "processes": 8}
    config = {
        "finetune": {"train": {"processes": 4, "nodes": 1}},
        "models": {"sft": {**entry, "processes": 4}, "big": entry},
    }
    errors, warnings = trainings.placement_problems([need], config)
    assert errors == ["finetune_train: the config has models.big.processes: 8, the profile 4 GPUs of a node"]
    assert not warnings


def test_a_failure_made_good_is_not_shown() -> None:
    log = """
Error in rule language_score:
    message: SLURM-job '1' failed
    jobid: 3
    log: logs/a.log, /x/logs/slurm/rule_language_score/main_00000/1.log (check log file(s) for error details)
Error in rule language_score:
    message: SLURM-job '2' failed
    jobid: 4
    log: logs/b.log, /x/2.log (check log file(s) for error details)
Finished jobid: 3 (Rule: language_score)
""".splitlines()
    (failure,) = status.failed_jobs(log)
    assert failure.number == "4" and [str(path) for path in failure.logs] == ["logs/b.log", "/x/2.log"]


def test_the_last_words_are_the_programs() -> None:
    log = [
        "    wildcards: variant=main",
        "error: no such file",
        "RuleException:",
        "CalledProcessError in file rules/x.smk",
        "srun: error: h1: task 0: Exited with exit code 1",
        "[Sat Nov 21 02:20:31 2026]",
        "Error in rule evaluate_model:",
        "At least one job did not complete successfully.",
        "slurmstepd: error: *** JOB 3 ON cpu1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    ]
    assert status.last_words(log) == [*log[:2], log[4], log[8]]
    assert status.last_words(["one", "two"]) == ["one", "two"]


GPUS = {"hidden_size": 2048, "intermediate_size": 5632, "layers": 22, "heads": 32, "kv_heads": 4, "context": 2048}


def trained(**keys: object) -> dict[str, object]:
    """A complete config of a model of a billion parameters."""
    train = {
        "model": GPUS,
        "tokens": 2 * 10**10,
        "global_batch_tokens": 2**21,
        "precision": "bf16",
        "processes": 4,
        "nodes": 2,
    }
    tree = {"tokenize": {"train": {"vocabulary": 32768}}, "pretrain": {"train": {**train, "zero_stage": 2, **keys}}}
    return config.validate(tree)


def test_a_training_that_does_not_fit_its_gpus_is_refused_with_what_makes_it_fit(tmp_path: Path) -> None:
    assert trainings.memory_problems([FITS], {"main": trained()}, tmp_path) == ([], [])
    (error,), _ = trainings.memory_problems([FITS], {"main": trained(micro_batch=32)}, tmp_path)
    assert error.startswith("pretrain_train: pretrain.train needs about 1") and "an h100 has 80.0 GB" in error
    assert "The largest part is activations, 126." in error and "set pretrain.train.micro_batch to 16 (" in error
    assert trainings.memory_problems([FITS], {"main": trained(micro_batch=8)}, tmp_path) == ([], [])
    # More memory than the table knows of can be said.
    roomy = trained(micro_batch=32)
    roomy["pretrain"]["plan"]["gpu_memory"] = 288  # type: ignore[index]
    assert trainings.memory_problems([FITS], {"main": roomy}, tmp_path) == ([], [])


def test_a_training_without_reserve_is_a_warning(tmp_path: Path) -> None:
    errors, (warning,) = trainings.memory_problems([FITS], {"main": trained(micro_batch=16)}, tmp_path)
    assert not errors and "of the GPU's memory" in warning and "GB are left" in warning


def test_each_engine_is_checked_with_its_own_memory(tmp_path: Path) -> None:
    """Without ZeRO DDP has weights and gradients in fp32, and autocast copies beside them."""
    theirs, ours = (trained(micro_batch=16, zero_stage=0, engine=engine) for engine in ("deepspeed", "torch"))
    assert len(trainings.memory_problems([FITS], {"main": theirs}, tmp_path)[1]) == 1
    (error,), _ = trainings.memory_problems([FITS], {"main": ours}, tmp_path)
    assert "set pretrain.train.zero_stage to 1, which trains again" in error


def test_what_the_trainer_would_let_start_is_no_error(tmp_path: Path) -> None:
    """The trainer refuses above TOLERANCE times what there is: so far may the estimate be from the peak."""
    close = trained(micro_batch=16)
    _, found = training.summary_and_placement(close, None, None, tmp_path, "h100")
    for part, refused in ((1.1, False), (1.2, True)):
        close["pretrain"]["plan"]["gpu_memory"] = found["memory"]["total"] / 1e9 / part  # type: ignore[index]
        errors, warnings = trainings.memory_problems([FITS], {"main": close}, tmp_path)
        assert (len(errors), len(warnings)) == ((1, 0) if refused else (0, 1))
        assert "pretrain.train needs about" in (errors + warnings)[0]


def test_every_variant_that_trains_is_checked_with_its_own_config_and_tokens(tmp_path: Path) -> None:
    wide, auto = trained(micro_batch=32), trained(tokens=None, epochs="auto")
    (error,), (warning,) = trainings.memory_problems([FITS], {"main": trained(), "wide": wide, "auto": auto}, tmp_path)
    assert error.startswith("pretrain_train of wide: pretrain.train needs about 1")
    assert warning.startswith("pretrain_train of auto: whether it fits its GPUs is not known: epochs are auto")
    made = Manifest("tokenize.encode", "test", summary={"train": {"tokens": 10**9}})
    made.write(tmp_path / "results/auto/tokenize/encode/00000.manifest.json", [])
    assert trainings.memory_problems([FITS], {"auto": auto}, tmp_path) == ([], [])
    assert trainings.memory_problems([FITS], {}, tmp_path) == ([], [])


def test_of_gpus_that_are_not_known_and_of_a_shape_that_is_auto_it_says_so(tmp_path: Path) -> None:
    errors, (warning,) = trainings.memory_problems([replace(FITS, gres="gpu:a100:4")], {"main": trained()}, tmp_path)
    assert not errors and "'a100', whose memory is not known: set pretrain.plan.gpu_memory" in warning
    errors, (warning,) = trainings.memory_problems([replace(FITS, gres="gpu:4")], {"main": trained()}, tmp_path)
    assert not errors and "the profile asks for a GPU without a name" in warning
    errors, (warning,) = trainings.memory_problems([FITS], {"main": config.validate({})}, tmp_path)
    assert not errors and "is not known: tokenize.train.vocabulary is auto" in warning
    assert trainings.memory_problems(
        [replace(FITS, rule="finetune_train")], {"main": trained(micro_batch=64)}, tmp_path
    ) == (
        [],
        [],
    )


EIGHT = {"hidden_size": 4096, "intermediate_size": 14336, "layers": 32, "heads": 32, "kv_heads": 8, "context": 4096}


def tuned(models: dict[str, dict[str, object]] | None = None, **keys: object) -> dict[str, object]:
    """A complete config whose model of eight billion parameters is fine-tuned."""
    tree = {
        "tokenize": {"train": {"vocabulary": 128256}},
        "pretrain": {"train": {"model": EIGHT, "tokens": 10**12, "global_batch_tokens": 2**22}},
        "finetune": {"train": {"max_length": 2048, "precision": "bf16", "micro_batch": 1, **keys}},
        "models": {"sft": {"from": "base", "step": "finetune.train"}, **(models or {})},
    }
    return config.validate(tree)


@pytest.mark.parametrize("engine", ["deepspeed", "torch"])
def test_a_fine_tuning_that_does_not_fit_its_gpus_is_refused_with_what_makes_it_fit(
    tmp_path: Path, engine: str
) -> None:
    need = replace(FITS, rule="finetune_train", nodes=1, gres="gpu:h100:8")
    whole = {"engine": engine, "zero_stage": 3, "processes": 8, "activation_checkpointing": True}
    assert trainings.tuning_problems([need], {"main": tuned(**whole)}, tmp_path) == ([], [])
    (error,), warnings = trainings.tuning_problems([need], {"main": tuned(**{**whole, "processes": 1})}, tmp_path)
    assert error.startswith("finetune_train sft: finetune.train needs about 1") and "GPUs, not 1 (" in error
    assert "(an h100)" in error and not warnings
    (error,), _ = trainings.tuning_problems([need], {"main": tuned(**{**whole, "zero_stage": 0})}, tmp_path)
    assert "set finetune.train.zero_stage to " in error and "pretrain" not in error
    # A model's own keys count, and every variant's.
    other = {"big": {"from": "sft", "step": "finetune.train", "zero_stage": 0}}
    (error,), _ = trainings.tuning_problems([need], {"v": tuned(other, **whole)}, tmp_path)
    assert error.startswith("finetune_train big of v: finetune.train needs about")
    # So is a continued pre-training.
    more = {"more": {"from": "base", "step": "pretrain.continue", "engine": engine, "zero_stage": 0, "processes": 8}}
    (error,), _ = trainings.tuning_problems(
        [replace(need, rule="pretrain_continue")], {"main": tuned(more, **whole)}, tmp_path
    )
    assert error.startswith("pretrain_continue more: pretrain.continue needs about")
    assert trainings.tuning_problems([FITS], {"main": tuned(zero_stage=0)}, tmp_path) == ([], [])
    assert trainings.tuning_problems([replace(need, gres="")], {"main": tuned(zero_stage=0)}, tmp_path) == ([], [])
    _, (warning,) = trainings.tuning_problems([need], {"main": config.validate({})}, tmp_path)
    assert "whether it fits its GPUs is not known: tokenize.train.vocabulary is auto" in warning
