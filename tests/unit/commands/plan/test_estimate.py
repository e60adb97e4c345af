"""How long a plan may take, from what the last run left: benchmark files, manifests, records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain import config_schema, steps
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.steps import STEPS
from crawl2llm.commands.plan import training
from crawl2llm.commands.plan.counting_steps import counting_step
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import (
    Estimate,
    Work,
    estimates_by_rule,
    measured_operations,
    parallel_seconds,
    ratio,
    training_operations,
)
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.core.console import format_duration
from crawl2llm.core.manifest import Manifest

CONFIG = configuration.validate(
    {
        "ingest": {"extract": {"shards": 2, "sources": [{"name": "web", "kind": "warc", "paths": ["*.gz"]}]}},
        "tokenize": {"train": {"vocabulary": 600}},
        "pretrain": {
            "train": {
                "model": {
                    "hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 2, "kv_heads": 2, "context": 128,
                },
                "steps": 40,
                "global_batch_tokens": 1024,
                "processes": 2,
            }
        },
    }
)  # fmt: skip
SHAPE = {**CONFIG["pretrain"]["train"]["model"], "vocabulary": 600}


class Folder:
    """A folder of a run, with what steps and Snakemake leave there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_task(self, step: str, task: str, seconds: float | None, counts: dict | None = None, summary: dict | None = None,
             record: dict | None = None, variant: str = "main") -> None:  # fmt: skip
        place = self.path / "results" / variant / step.replace(".", "/")
        place.mkdir(parents=True, exist_ok=True)
        Manifest(step, "test", counts or {}, summary or {}).write(place / f"{task}.manifest.json".lstrip("."), [])
        if record is not None:
            (place / f"{task}.run.json".lstrip(".")).write_text(json.dumps(record))
        if seconds is not None:
            self.benchmark(step, task, seconds, variant)

    def benchmark(self, step: str, task: str, seconds: float, variant: str = "main", end: str = ".tsv") -> None:
        stage, name = step.split(".")
        path = self.path / "results" / variant / "benchmarks" / stage / (f"{name}/{task}{end}" if task else name + end)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"s\th:m:s\tmax_rss\n{seconds}\t0:00:01\t1\n")

    def ask(self, *tasks: Task, config: dict = CONFIG) -> dict[str, Estimate]:
        """Each shard reads the file of its name."""
        files = {shard: [f"web=./{shard}.gz"] for shard in steps.shards(config)}
        variants, sources = {"main": config, "new": config}, {"main": files, "new": files}
        return estimates_by_rule(list(tasks), Work(LastRun(self.path), list(tasks), variants, sources), cores=2)


def task(step: str, name: str = "", variant: str = "main", **facts: str) -> Task:
    output = f"results/{variant}/{step.replace('.', '/')}/{f'{name}.' if name else ''}manifest.json"
    return Task(step.replace(".", "_"), {"output": output, **facts})


def counts(number: int, kept: int) -> dict:
    return {"in": number, "kept": kept, "dropped": {"x": number - kept} if number > kept else {}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Two shards of 100 bytes, each a task, ingested and scored; language.select kept half."""
    monkeypatch.setattr(steps, "AT_ONCE", 1)
    made = Folder(tmp_path)
    for shard in ("00000", "00001"):
        (tmp_path / f"{shard}.gz").write_bytes(bytes(100))
        made.write_task("ingest.extract", shard, 10, counts(40, 40), {"bytes_read": 100})
        made.write_task("language.score", shard, 6, counts(40, 40))
        made.write_task("language.select", shard, 8, counts(40, 20))
    made.write_task("ingest.check", "", 1, counts(80, 80))
    return made


def test_every_step_that_counts_by_another_has_one_above_it() -> None:
    order = list(STEPS)
    for step in order:
        read = counting_step(step, list(FILTERS))
        assert read is None or order.index(read) < order.index(step), step


def test_one_step_takes_its_longest_task_or_all_its_work_over_the_cores() -> None:
    assert parallel_seconds([(10, 1), (10, 1), (10, 1)], cores=2) == 15
    assert parallel_seconds([(10, 1), (1, 1)], cores=2) == 10
    assert parallel_seconds([(10, 2), (10, 2)], cores=2) == 20
    assert parallel_seconds([(10, 8)], cores=2) == 10  # as many threads as there are cores
    assert parallel_seconds([(10, 1)] * 100, cores=None) == 10
    assert parallel_seconds([], cores=2) == 0


def test_what_is_not_known_scales_nothing() -> None:
    assert (ratio(3, 2), ratio(None, 2), ratio(3, None), ratio(3, 0), ratio(0, 3)) == (1.5, 1, 1, 1, 1)


def test_the_same_input_takes_the_same_time(folder: Folder) -> None:
    assert folder.ask(task("language.select", "00000"))["language_select"] == Estimate(8, 0, 0, 1)


def test_a_task_that_was_started_again_costs_what_its_work_cost(folder: Folder) -> None:
    folder.benchmark("language.select", "00000", 20, end=".work.tsv")
    assert folder.ask(task("language.select", "00000"))["language_select"].seconds == 20


def test_never_measured_is_unknown(folder: Folder) -> None:
    assert folder.ask(task("heuristics.score", "00000"))["heuristics_score"] == Estimate(0, 0, 1, 1)
    folder.write_task("heuristics.select", "00000", None, counts(40, 30))
    (folder.path / "results/main/benchmarks/heuristics/select").mkdir(parents=True)
    (folder.path / "results/main/benchmarks/heuristics/select/00000.tsv").write_text("s\n")  # cut off
    assert folder.ask(task("heuristics.select", "00000"))["heuristics_select"].unknown == 1


def test_a_larger_source_file_takes_longer_and_so_does_what_is_below(folder: Folder) -> None:
    (folder.path / "00001.gz").write_bytes(bytes(300))
    found = folder.ask(
        task("ingest.extract", "00001"),
        task("ingest.check"),
        task("language.score", "00000"),
        task("language.score", "00001"),
        task("language.select", "00000"),
    )
    assert found["ingest_extract"].seconds == pytest.approx(30)
    assert found["language_score"].seconds == pytest.approx(12)  # 400 bytes for 200, on 2 cores
    assert found["language_select"].seconds == pytest.approx(16)


def test_fewer_shards_have_more_to_do_each(folder: Folder) -> None:
    found = folder.ask(
        task("language.score", "00000"), config=configuration.validate({"ingest": {"extract": {"shards": 1}}})
    )
    assert found["language_score"].seconds == pytest.approx(12)


def test_a_new_shard_goes_by_the_rate_of_the_others(folder: Folder) -> None:
    (folder.path / "00002.gz").write_bytes(bytes(50))
    config = configuration.validate({"ingest": {"extract": {"shards": 3}}})
    found = folder.ask(
        task("ingest.extract", "00002"),
        task("ingest.check"),
        task("language.score", "00002"),
        config=config,
    )
    assert found["ingest_extract"].seconds == pytest.approx(5)
    assert found["language_score"].seconds == pytest.approx(12 * 1.25 / 3)


def test_a_task_of_several_shards_reads_the_files_of_all(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "TASKS", 1)
    (folder.path / "00001.gz").write_bytes(bytes(300))
    (folder.path / "results/main/benchmarks/ingest/extract/00001.tsv").unlink()
    found = folder.ask(task("ingest.extract", "00000"))
    assert found["ingest_extract"].seconds == pytest.approx(20)  # 10 s for 200 bytes then, 400 now


def test_what_a_step_above_keeps_by_now_counts(folder: Folder) -> None:
    """An interrupted run has made language.score anew; language.select read fewer documents then."""
    folder.write_task("language.score", "00000", 6, counts(120, 120))
    assert folder.ask(task("language.select", "00000"))["language_select"].seconds == pytest.approx(16)


def test_a_source_file_that_is_gone_scales_nothing(folder: Folder) -> None:
    (folder.path / "00001.gz").unlink()
    found = folder.ask(task("ingest.extract", "00001"), task("language.score", "00001"))
    assert (found["ingest_extract"].seconds, found["language_score"].seconds) == (10, 6)


def test_the_copy_of_a_manifest_counts_where_snakemake_removed_it(folder: Folder) -> None:
    (folder.path / "results/main/language/select/00000.manifest.json").unlink()
    folder.write_task("language.score", "00000", 6, counts(120, 120))
    assert folder.ask(task("language.select", "00000"))["language_select"].seconds == pytest.approx(16)


def test_a_new_variant_goes_by_main(folder: Folder) -> None:
    found = folder.ask(task("language.select", "00000", variant="new"))
    assert found["language_select"] == Estimate(8, 0, 0, 1)


def write_training(folder: Folder, device: str = "cpu", processes: int = 2) -> None:
    summary = {"steps": 40, "global_batch_tokens": 1024, "tokens": 40_960, "shape": SHAPE}
    folder.write_task("tokenize.encode", "00000", 4, counts(40, 40), {"train": {"tokens": 50_000}})
    folder.write_task("pretrain.train", "", 90, {}, summary, {"device": device, "processes": processes})


def with_training(**settings: object) -> dict:
    return {**CONFIG, "pretrain": {"train": {**CONFIG["pretrain"]["train"], **settings}}}


def test_a_training_goes_by_its_operations(folder: Folder) -> None:
    write_training(folder)
    assert folder.ask(task("pretrain.train"))["pretrain_train"].seconds == pytest.approx(90)
    more = with_training(steps=80, global_batch_tokens=2048)
    assert folder.ask(task("pretrain.train"), config=more)["pretrain_train"].seconds == pytest.approx(360)
    wider = with_training(model={**CONFIG["pretrain"]["train"]["model"], "hidden_size": 64})
    assert folder.ask(task("pretrain.train"), config=wider)["pretrain_train"].seconds > 150


def test_the_start_of_a_training_takes_as_long_however_long_it_is(folder: Folder) -> None:
    write_training(folder)
    rows = [{"step": 20, "seconds": 10.0}, {"step": 40, "seconds": 30.0}]
    path = folder.path / "results/main/pretrain/train/metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = with_training(steps=160)
    assert folder.ask(task("pretrain.train"), config=more)["pretrain_train"].seconds == pytest.approx(60 + 4 * 30)
    path.write_text(
        json.dumps({"step": 40, "seconds": 200.0}) + "\n"
    )  # of several starts, of which the last was measured
    assert folder.ask(task("pretrain.train"), config=more)["pretrain_train"].seconds == pytest.approx(360)


def write_measured_training(folder: Folder) -> None:
    """A training on a CPU whose speed is known."""
    write_training(folder)
    folder.write_task("tokenize.train", "", 1, None, {"vocabulary": 600})
    place = folder.path / "results/main/pretrain/train"
    fingerprint = {"config": config_schema.tracked_section(CONFIG, "pretrain.train")}
    facts = {"device": "cpu", "processes": 2, "devices": {"a CPU": 2}, "fingerprint": fingerprint}
    (place / "run.json").write_text(json.dumps(facts))
    (place / "metrics.jsonl").write_text(json.dumps({"step": 40, "tokens_per_second": 1e6, "seconds": 0.1}) + "\n")


def test_the_words_on_a_training_have_the_time_of_the_table(folder: Folder) -> None:
    """One figure; and where another engine was measured, its name."""
    write_measured_training(folder)
    for more, words in (({}, "here, scaled"), ({"engine": "torch"}, "here, with engine deepspeed, scaled")):
        config, tasks = with_training(steps=80, global_batch_tokens=2048, **more), [task("pretrain.train")]
        config["pretrain"]["plan"] = CONFIG["pretrain"]["plan"]
        work = Work(LastRun(folder.path), tasks, {"main": config}, {"main": {}})
        seconds = estimates_by_rule(tasks, work, 2)["pretrain_train"].seconds
        (line,) = [line for line in training.training_lines(tasks, work) if "about" in line]
        assert line.startswith(f"  about {format_duration(seconds)} on this machine, by ") and words in line


@pytest.mark.parametrize(
    ("plan", "train"),
    [
        ({"gpu": "h100"}, {"precision": "bf16"}),
        ({"gpu": "h100"}, {}),
        ({}, {"device": "cpu", "precision": "bf16"}),
        ({}, {"device": "cpu", "model": {**CONFIG["pretrain"]["train"]["model"], "hidden_size": 512}}),
    ],
)
def test_a_last_training_that_was_another_says_nothing(folder: Folder, plan: dict, train: dict) -> None:
    """As in pretrain.plan: of another device or precision, or of more than four times as many parameters."""
    write_measured_training(folder)
    config, tasks = with_training(global_batch_tokens=2048, **train), [task("pretrain.train")]
    config["pretrain"]["plan"] = {**CONFIG["pretrain"]["plan"], **plan}
    work = Work(LastRun(folder.path), tasks, {"main": config}, {"main": {}})
    assert estimates_by_rule(tasks, work, 2)["pretrain_train"].unknown == 1
    text = "\n".join(training.training_lines(tasks, work))
    assert "the table above" not in text
    assert (
        re.search(r"the last training here was another: \d\d,\d+ parameters, fp32, on a CPU", text) or "no peak" in text
    )


def test_operations_are_those_that_the_manifest_says() -> None:
    summary = {"steps": 40, "global_batch_tokens": 1024, "tokens": 40_960, "shape": SHAPE}
    each, whole = measured_operations(summary) or (0, 0)
    assert (
        training_operations(CONFIG["pretrain"]["train"], 50_000, 600) == (each, whole) and whole == 40 * 1024 * each > 0
    )
    assert training_operations(CONFIG["pretrain"]["train"], 20, 600) is None  # less than a window
    assert measured_operations({"steps": 40}) is None


def test_a_training_on_a_cpu_uses_no_gpu(folder: Folder) -> None:
    write_training(folder)
    assert folder.ask(task("pretrain.train"))["pretrain_train"].gpu_hours == 0


def test_gpu_hours_are_those_of_all_processes(folder: Folder) -> None:
    write_training(folder, "cuda", processes=2)
    assert folder.ask(task("pretrain.train"))["pretrain_train"] == Estimate(90, 180 / 3600, 0, 1)
    found = folder.ask(task("pretrain.train", resources="mem_mb=1, gres=gpu:h100:4, card=4, nodes=1"))
    assert found["pretrain_train"] == Estimate(45, 180 / 3600, 0, 1)  # twice the GPUs, as many GPU-hours
    nodes = folder.ask(task("pretrain.train"), config=with_training(nodes=2))
    assert nodes["pretrain_train"] == Estimate(45, 180 / 3600, 0, 1)


def test_seconds_of_a_cpu_say_nothing_of_a_gpu(folder: Folder) -> None:
    write_training(folder, "cpu")
    assert folder.ask(task("pretrain.train", resources="card=4"))["pretrain_train"].unknown == 1


def test_a_fine_tuning_goes_by_its_pairs_its_epochs_and_the_model(folder: Folder) -> None:
    write_training(folder)
    folder.write_task("finetune.pairs", "", 1, counts(60, 60))
    folder.write_task("finetune.train", "sft", 30, {}, {}, {"fingerprint": {"config": {"epochs": 1}}})
    config = {**CONFIG, "finetune": {"train": {**CONFIG["finetune"]["train"], "epochs": 3}}}
    assert folder.ask(task("finetune.train", "sft"), config=config)["finetune_train"].seconds == pytest.approx(90)
    wider = with_training(model={**CONFIG["pretrain"]["train"]["model"], "hidden_size": 64})
    assert folder.ask(task("finetune.train", "sft"), config=wider)["finetune_train"].seconds > 50


def test_a_new_model_takes_as_long_as_the_others_by_its_own_epochs(folder: Folder) -> None:
    write_training(folder)
    folder.write_task("finetune.pairs", "", 1, counts(60, 60))
    folder.write_task("finetune.train", "sft", 30, {}, {}, {"fingerprint": {"config": {"epochs": 1}}})
    entry = {"from": "base", "step": "finetune.train", "epochs": 1}
    config = {**CONFIG, "models": {"sft": entry, "longer": {**entry, "epochs": 2}}}
    found = folder.ask(task("finetune.train", "sft"), task("finetune.train", "longer"), config=config)
    assert found["finetune_train"].seconds == pytest.approx(60)  # beside each other, on two cores
    assert folder.ask(task("finetune.train", "longer"), config=config)["finetune_train"].seconds == pytest.approx(60)
    folder.write_task("evaluate.model", "base", 10, {})
    folder.write_task("evaluate.model", "sft", 20, {})
    found = folder.ask(task("evaluate.model", "base"), task("evaluate.model", "longer"), config=config)
    assert found["evaluate_model"].seconds == pytest.approx(15)


def test_a_distillation_goes_by_its_tokens_and_by_the_forward_pass_of_its_teacher(folder: Folder) -> None:
    entry = {"from": "small", "step": "compress.distil", "teacher": "base", "tokens": 1000}
    small = {"from": "base", "step": "compress.prune"}
    folder.write_task("pretrain.train", "", None, {}, {"parameters": {"total": 900, "non_embedding": 800}})
    folder.write_task("compress.prune", "small", None, {}, {"parameters": 300})
    record = {"fingerprint": {"config": {"tokens": 1000, "teacher": "base", "top_k": 0, "text_share": 0}}}
    folder.write_task("compress.distil", "taught", 36, {}, {"parameters": 300}, record)

    def seconds(**keys: object) -> float:
        models = {"small": small, "taught": entry, "new": {**entry, **keys}}
        config = configuration.validate({**CONFIG, "models": models})
        return folder.ask(task("compress.distil", "new"), config=config)["compress_distil"].seconds

    assert seconds() == pytest.approx(36)
    assert seconds(tokens=3000) == pytest.approx(108)
    assert seconds(text_share=1) == seconds(top_k=8) == pytest.approx(36 * 6 * 300 / (6 * 300 + 2 * 900))
    assert seconds(teacher="small") == pytest.approx(36 * 8 * 300 / (6 * 300 + 2 * 900))


def test_a_total_adds_what_is_known() -> None:
    assert Estimate(10, 1, 0, 2) + Estimate(5, 0, 1, 1) == Estimate(15, 1, 1, 3)
