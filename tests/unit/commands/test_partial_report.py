"""`crawl2llm report`: the page of a run that is not finished, damaged, or short of what larger corpora have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import steps
from crawl2llm.commands import partial_report
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.manifest import ALL, Manifest
from crawl2llm.formats.run_records import NOTES, Run, measurement_files, training_metrics
from crawl2llm.stages.report import page, render, state, tables
from crawl2llm.stages.report.models import Model, models_of_run
from tests.unit.stages.report.conftest import SHARDS
from tests.unit.stages.report.test_render import FINGERPRINT, Page

CONFIG = '{"ingest": {"extract": {"shards": 2, "sources": [{"name": "web", "kind": "warc", "paths": ["*.gz"]}]}}}'
TRAINED = ("pretrain.train", "finetune.train", "evaluate.model")


def remove(results: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(results.joinpath(*name.split(".")))


def shown(results: Path, capsys: Any, *options: str, status: int = 0) -> tuple[str, str]:
    """(the page's text, what the command printed) of the run in `results`; the page's markup is sound."""
    assert partial_report.main(["--results", str(results), *options]) == status
    text = (results / "report/now/report.html").read_text(encoding="utf-8")
    Page(text)
    return text.replace(page.NARROW, " "), capsys.readouterr().out


def missing(results: Path, config: str | None = None) -> dict[str, tuple[int, int | None]]:
    found = render.complete_config([config] if config else [], "main")
    return {row["step"]: (row["found"], row["expected"]) for row in state.read_state(results, found, found).missing}


def test_what_is_missing_is_said_by_step(run_folder: Path, capsys: Any) -> None:
    remove(run_folder, *TRAINED, "quality.select")
    (run_folder / "tokenize/encode/00001.manifest.json").unlink()
    text, printed = shown(run_folder, capsys, "--configfile", CONFIG)
    assert "This run is not complete" in text and "No model has been trained in this run yet" in text
    for step in (*TRAINED, "quality.select", "language.score"):  # the last was never in this run
        assert f"<b>{step}</b>: not there" in text and f"missing     {step}: not there" in printed
    assert "<b>tokenize.encode</b>: 1 of 2 tasks are there" in text
    # Nor are the others of this config: the fixture's fingerprint is nobody's.
    assert "a run makes them again: ingest.extract" in text
    assert "outdated    made under other settings, code or input: ingest.extract" in printed
    assert "trained     no model yet" in printed and "base model  not evaluated" in printed
    assert json.loads((run_folder / "report/now/counts.json").read_text())["missing"]


def test_without_a_config_the_number_of_shards_is_not_guessed(run_folder: Path) -> None:
    (run_folder / "tokenize/encode/00001.manifest.json").unlink()
    assert missing(run_folder, CONFIG)["tokenize.encode"] == (1, 2)
    assert "tokenize.encode" not in missing(run_folder)
    assert "crawl.render" not in missing(run_folder)


def test_a_variant_reads_from_main(run_folder: Path) -> None:
    few = run_folder.with_name("few")
    shutil.copytree(run_folder / "quality/select", few / "quality/select")
    found = state.read_state(few).run
    assert found.manifests_of("quality.select")[0].folder == few / "quality/select"
    assert found.manifests_of("dedup.select")[0].folder == run_folder / "dedup/select"


def test_a_variant_of_one_model_reads_the_others_from_main(run_folder: Path) -> None:
    """Each model for itself: what differs is the variant's own, and its evaluation."""
    few = run_folder.with_name("few")
    for name in ("finetune/train", "evaluate/model"):
        shutil.copytree(run_folder / name, few / name)
    whole = render.complete_config([CONFIG], "main")
    changed = {"models": {"sft": {"from": "base", "step": "finetune.train", "epochs": 1}}}
    config = render.complete_config([json.dumps({**json.loads(CONFIG), **changed})], "main")
    found = state.read_state(few, config, whole).run
    where = {(step, name): found.task(step, name).folder.parents[1].name for step in ("finetune.train", "evaluate.model")
             for name in found.tasks(step)}  # type: ignore[union-attr]  # fmt: skip
    assert where == {
        ("finetune.train", "sft"): "few", ("evaluate.model", "base"): "main", ("evaluate.model", "sft"): "few",
    }  # fmt: skip


def test_a_model_that_the_config_lacks_and_one_without_a_name_are_not_shown(run_folder: Path) -> None:
    folder = run_folder / "finetune/train"
    shutil.copyfile(folder / "sft.manifest.json", folder / "manifest.json")  # of an earlier version
    assert state.read_state(run_folder).run.tasks("finetune.train") == ["sft"]
    evaluate = {"model": {"untrained": False}}
    config = render.complete_config([json.dumps({**json.loads(CONFIG), "models": {}, "evaluate": evaluate})], "main")
    found = state.read_state(run_folder, config, config)
    assert found.run.manifests_of("finetune.train") == [] and found.run.tasks("evaluate.model") == ["base"]
    assert not {"finetune.train", "evaluate.model"} & {row["step"] for row in found.missing}


def link(results: Path, step: str, *inputs: str) -> None:
    """Let the step's manifests say that they were made from what the inputs' manifests hold now."""
    for path in results.joinpath(*step.split(".")).glob("*manifest.json"):
        body = json.loads(path.read_text())
        for name in inputs:
            for other in results.joinpath(*name.split(".")).glob("*manifest.json"):
                found = Manifest.read_unchecked(other)
                body["inputs"][found.key] = {ALL: found.digest_of(ALL)}
        path.write_text(json.dumps(body))


@pytest.mark.slow  # seconds
def test_results_that_no_longer_belong_together_are_said(run_folder: Path, capsys: Any) -> None:
    """The data half was made again with other settings after the model was trained: nothing needs a config to see it."""
    for step, *inputs in (("tokenize.train", "corpus.write"), ("tokenize.encode", "corpus.write", "tokenize.train"),
                          ("pretrain.train", "tokenize.encode", "tokenize.train"),
                          ("evaluate.model", "pretrain.train")):  # fmt: skip
        link(run_folder, step, *inputs)
    text, printed = shown(run_folder, capsys)
    assert "outdated" not in printed.lower() and "Outdated" not in text
    path = run_folder / "corpus/write/00001.manifest.json"
    body = json.loads(path.read_text())
    body["summary"]["train"]["documents"] -= 1
    path.write_text(json.dumps(body))
    text, printed = shown(run_folder, capsys)
    assert "outdated    tokenize.encode: made from an earlier version of corpus.write" in printed
    words = "made from outdated results of tokenize.train and tokenize.encode"
    assert f"outdated    pretrain.train: {words}" in printed
    assert "outdated    evaluate.model: made from outdated results of pretrain.train" in printed
    trained = next(line for line in printed.splitlines() if line.startswith("trained "))
    assert trained.endswith("60 steps (outdated, see below: pretrain.train)")
    assert "outdated    corpus.write" not in printed and "outdated    finetune" not in printed
    assert text.count(f"pretrain.train</b>: {words}") == 1 and text.count(f"pretrain.train: {words}.") == 1
    assert "not all of it belongs together" in text
    assert json.loads((run_folder / "report/now/counts.json").read_text())["outdated"].keys() == {
        "tokenize.train", "tokenize.encode", "pretrain.train", "evaluate.model",
    }  # fmt: skip


def test_only_some_tasks_of_a_step_may_be_outdated(run_folder: Path) -> None:
    path = run_folder / "corpus/write/00001.manifest.json"
    body = json.loads(path.read_text())
    body["inputs"] = {
        "ingest.extract 00001": {ALL: "of another time"},
        "quality.train": {},
        "language.score 00001": {ALL: "gone"},
    }
    path.write_text(json.dumps(body))
    found = state.read_state(run_folder)
    words = "1 of 2 tasks made from an earlier version of ingest.extract"
    assert found.outdated == {"corpus.write": words} and not found.is_complete


def test_every_kind_of_damage_is_named_and_left_out(run_folder: Path, capsys: Any) -> None:
    def spoil(name: str) -> None:  # the size stays, so that only reading shows it
        path = run_folder / name
        path.write_bytes(b"\xff" * path.stat().st_size)

    manifests = ("dedup/select/manifest.json", "quality/train/manifest.json")
    data = (
        "ingest/extract/00000.parquet", "ingest/extract/00000.dropped.parquet", "corpus/write/dropped/00001.parquet",
        "evaluate/model/base.evaluation.json", "evaluate/model/sft.samples.jsonl",
        "pretrain/train/metrics.jsonl", "benchmarks/quality/select.tsv",
    )  # fmt: skip
    for name in (*manifests, *data):
        spoil(name)
    (run_folder / "corpus/write/train/00000.parquet").unlink()
    (run_folder / "language/select/00000.manifest.json").write_text('{"step": "language.select", "counts": {"in": 5}}')
    path = run_folder / "heuristics/select/00000.manifest.json"
    path.write_text(path.read_text().replace('"dropped"', '"lost"', 1).replace("heuristics.select", "quality.select"))
    text, printed = shown(run_folder, capsys)
    for name in (*manifests, *data, "corpus/write/00000.manifest.json", "language/select/00000.manifest.json",
                 "heuristics/select/00000.manifest.json"):  # fmt: skip
        assert text.count(f'<span class="mono">results/main/{name}</span>') == 1, name
        assert f"damaged     results/main/{name}: " in printed
    assert "dedup.select</b>: there, but damaged" in text
    assert "this page cannot know" in text  # how many tasks there should be, without a config


@pytest.mark.parametrize("name", ["ingest/extract/00000.parquet", "evaluate/model/base.evaluation.json"])
def test_in_a_finished_run_damage_is_an_error_that_names_the_file(
    run_folder: Path, manifests: list[Path], name: str, capsys: Any
) -> None:
    path = run_folder / name
    path.write_bytes(b"\xff" * path.stat().st_size)
    out = run_folder / "report/render/manifest.json"
    assert render.main(["--config", FINGERPRINT, "--manifest", str(out), "--manifests", *map(str, manifests)]) == 1
    assert name in capsys.readouterr().err
    assert not out.exists()


def test_training_that_runs_shows_its_curve(run_folder: Path, capsys: Any) -> None:
    checkpoints = run_folder.parent.parent / "checkpoints/0123"
    checkpoints.mkdir(parents=True)
    checkpoint_folders.write_pointer(checkpoints, Path("results/main/pretrain/train/manifest.json"), "0123")
    shutil.move(run_folder / "pretrain/train/metrics.jsonl", checkpoints)
    remove(run_folder, *TRAINED)
    (run_folder.parent.parent / "checkpoints/older").mkdir()
    text, printed = shown(run_folder, capsys)
    assert "pretrain.train: in training, or interrupted in it; step 60, loss 3" in printed
    assert "Not finished: these are the losses" in text and 'id="model-base-loss-title"' in text
    assert "1.9</td>" in text  # bits per byte


def test_finetuning_that_runs_is_read_from_beside_its_checkpoints(tmp_path: Path) -> None:
    rows = [{"step": 0, "heldout_loss": 6.0}, *({"step": at, "loss": 5.0 - at / 10} for at in range(1, 11))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 11, "lo')
    assert [path.name for path in measurement_files(tmp_path)] == ["metrics.jsonl"]
    model = Model("sft", "base", "finetune.train")
    run = Run(training={("finetune.train", "sft"): tmp_path})
    assert [found.name for found in models_of_run(run)] == ["base", "sft"]
    assert [row["loss"] for row in training_metrics(run, "finetune.train", "sft") if "loss" in row][-1] == 4.0
    assert dict(row[:2] for row in tables.progress_facts(run, model, None))["Steps so far"] == "10"


def test_unfinished_training_is_found_by_its_fingerprint(tmp_path: Path) -> None:
    config = render.complete_config([CONFIG], "main")
    assert config is not None
    for step, task, name in (("pretrain.train", "", "manifest.json"), ("finetune.train", "sft", "sft.manifest.json")):
        mark = state.config_digest(step, config, task=task)
        results, place = tmp_path / "results/main" / step.replace(".", "/"), tmp_path / "checkpoints" / mark
        assert state.unfinished_training(results, step, config, task) is None
        checkpoint_folders.write_pointer(place, results.relative_to(tmp_path) / name, mark)
        assert state.unfinished_training(results, step, config, task) is None  # it has written no loss yet
        (place / "losses.jsonl").write_text("")
        assert (
            state.unfinished_training(results, step, config, task)
            == state.unfinished_training(results, step, None, task)
            == place
        )
        assert (step, task) in state.training_tasks(tmp_path / "results/main", None)
        checkpoint_folders.write_pointer(place, results.relative_to(tmp_path) / name, "of another config")
        assert state.unfinished_training(results, step, config, task) is None


@pytest.mark.slow  # seconds
def test_notes_of_all_steps_are_shown_once(run_folder: Path, manifests: list[Path], capsys: Any) -> None:
    def note(name: str, *texts: Any) -> None:
        body = json.loads((run_folder / name).read_text())
        body["summary"]["notes"] = list(texts)
        (run_folder / name).write_text(json.dumps(body))

    for shard in SHARDS:
        note(f"corpus/write/{shard}.manifest.json", "no validation documents: <3 hosts")
    note("quality/train/manifest.json", *(f"note {number}" for number in range(NOTES + 3)))
    text, printed = shown(run_folder, capsys)
    assert text.count("no validation documents: &lt;3 hosts") == 1 and "(2 tasks)" in text
    assert text.index("no validation documents") < text.index('class="tiles"')
    assert "and 3 more notes" in text and "note 22" not in text
    assert "note        corpus.write: no validation documents: <3 hosts" in printed
    out = run_folder / "report/render/manifest.json"
    assert render.main(["--config", FINGERPRINT, "--manifest", str(out), "--manifests", *map(str, manifests)]) == 0
    assert "no validation documents" in out.with_name("report.html").read_text(encoding="utf-8")
    assert "no validation documents" in out.with_name("counts.json").read_text(encoding="utf-8")


def test_a_small_corpus_lacks_much(run_folder: Path, capsys: Any) -> None:
    """No validation documents, no questions, no ROC-AUC, no fine-tuning: nothing is shown as if it were measured."""
    remove(run_folder, "finetune.train")
    (run_folder / "evaluate/model/sft.manifest.json").unlink()
    for path in run_folder.rglob("*manifest.json"):
        body = json.loads(path.read_text())
        for key in ("validation", "roc_auc", "heldout", "bits_per_byte", "measured_bytes", "bytes_per_token"):
            body["summary"].pop(key, None)
        path.write_text(json.dumps(body))
    path = run_folder / "evaluate/model/base.evaluation.json"
    empty = {"model": "base", "heldout_text": None, "questions": None, "tasks": None}
    text = json.dumps(empty)
    path.write_text(text + " " * (path.stat().st_size - len(text)))
    text, _ = shown(run_folder, capsys)
    assert 'ROC-AUC of the classifier</th><td class="n">–</td><td class="small muted">not measured' in text
    assert 'Held-out text</dt><dd><div class="value">–</div><div class="note">not measured' in text
    assert "– bytes" not in text and "– held-out questions" not in text and "– validation documents" not in text


@pytest.mark.slow  # seconds
def test_where_nothing_was_fine_tuned_no_column_says_so(run_folder: Path, capsys: Any) -> None:
    """Without pairs, the model under the name of the fine-tuned one is the base model: its numbers are not shown twice."""
    path = run_folder / "finetune/train/sft.manifest.json"
    body = json.loads(path.read_text())
    body["summary"] = {"trained": False, "notes": ["no pairs: not fine-tuned"]}
    path.write_text(json.dumps(body))
    text, printed = shown(run_folder, capsys)
    assert '<th scope="col" class="n">Base model</th>' in text and '<th scope="col" class="n">sft' not in text
    assert "Without a column, for nothing was trained: sft." in text and "sft says" not in text
    assert "Accuracy, sft" not in text and "26.0 % ± 1.6 %" in text and "41.0 %" not in text
    assert "sft         not trained, this is the model base" in printed


def test_of_another_directory(run_folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """As Snakemake's --directory: results lie there, and paths of the config are relative to it; the config itself to here."""
    folder = run_folder.absolute().parent.parent
    (folder / "hosts").mkdir()
    (tmp_path / "own.yaml").write_text("url: {score: {folders: 3}}")
    (tmp_path / "over.yaml").write_text("url: {score: {folders: [hosts]}}")
    monkeypatch.chdir(tmp_path)
    assert partial_report.main(["--directory", str(folder), "--configfile", "own.yaml"]) == 1
    assert "own.yaml" in capsys.readouterr().err
    assert partial_report.main(["--directory", str(folder), "--configfile", "own.yaml", "over.yaml"]) == 0
    assert str(folder / "results/main/report/now/report.html") in capsys.readouterr().out


def test_nothing_there_is_an_error(tmp_path: Path, capsys: Any) -> None:
    assert partial_report.main(["--results", str(tmp_path / "main")]) == 1
    assert "is not a folder; give that of a variant" in capsys.readouterr().err
    (tmp_path / "main").mkdir()
    assert partial_report.main(["--results", str(tmp_path / "main")]) == 1
    assert "no step has finished" in capsys.readouterr().err


def test_a_wrong_config_is_an_error(run_folder: Path, capsys: Any) -> None:
    assert partial_report.main(["--results", str(run_folder), "--configfile", '{"langauge": {}}']) == 1
    assert "langauge is not a known key" in capsys.readouterr().err


def test_expected_steps_are_those_that_the_config_needs() -> None:
    config = render.complete_config([CONFIG], "main")
    assert config is not None
    assert set(state.expected_counts(config, {})) == set(steps.used_steps(config)) - {"report.render", "crawl.render"}
    demo = render.complete_config(["{}"], "main")
    assert "crawl.render" in state.expected_counts(demo, {})


def test_a_variant_of_other_source_files_is_not_shown_mains_results(run_folder: Path) -> None:
    """Which files `paths` finds is in no fingerprint."""
    other = run_folder.with_name("other")
    shutil.copytree(run_folder / "ingest", other / "ingest")
    source = {"name": "books", "kind": "text"}
    extract = {**json.loads(CONFIG)["ingest"]["extract"], "sources": [{**source, "paths": ["a/*.txt"]}]}
    overlay = {"ingest": {"extract": {**extract, "sources": [{**source, "paths": ["b/*.txt"]}]}}}
    given = json.dumps({**json.loads(CONFIG), "ingest": {"extract": extract}, "variants": {"other": overlay}})
    found = state.read_state(
        other, render.complete_config([given], "other"), render.complete_config([given], "main")
    ).run
    assert [made.folder for made in found.manifests_of("ingest.extract")] == [other / "ingest/extract"] * 2


def test_a_variant_may_take_a_model_away() -> None:
    given = json.dumps({**json.loads(CONFIG), "variants": {"raw": {"models": {"sft": None}}}})
    config = render.complete_config([given], "raw")
    assert config is not None and config["models"] == {}
