"""Ready fastText models, KenLM, calibration, combination and selection, by their programs on small real models."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crawl2llm.chain import config, steps
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import calibrate, combine, fasttext, kenlm, lm, scorers, select, tools
from crawl2llm.filters.quality.classifier import NEGATIVE, POSITIVE
from crawl2llm.filters.quality.perplexity import Models, normalize_line, spaced_words
from crawl2llm.filters.quality.settings import ScorerModel
from crawl2llm.formats.documents import parquet_file, rows
from tests.unit import making
from tests.unit.filters.quality.conftest import needs_kenlm, pages, sentence

Crawl = tuple[list[Path], Path]


def fast(crawl: Crawl, folder: Path, *models: dict[str, Any]) -> list[Path]:
    """The manifests of quality.fasttext on both shards."""
    made = []
    for path in crawl[0]:
        made.append(folder / path.name)
        argv = ["--config", making.config("quality.fasttext", models=list(models)), "--documents", str(path)]
        assert fasttext.main([*argv, "--verdicts", str(crawl[1]), "--manifest", str(made[-1])]) == 0
    return made


def test_fasttext_by_label_and_by_values(crawl: Crawl, tmp_path: Path, fasttext_file: Path) -> None:
    path = str(fasttext_file)
    made = fast(
        crawl,
        tmp_path / "fasttext",
        {"name": "hq", "path": path, "label": "curated"},
        {"name": "mark", "path": path, "values": {POSITIVE: 5, NEGATIVE: 1}},
        {"name": "bad", "path": path, "label": NEGATIVE, "better": "low"},
    )
    for row in rows(parquet_file(made[0])):
        assert row["mark"] == pytest.approx(1 + 4 * row["hq"], abs=1e-4) and row["hq"] + row["bad"] == pytest.approx(
            1, abs=1e-4
        )
        assert (row["hq"] > 0.5) == row["curated"]
    assert Manifest.read(made[0]).summary["scorers"]["bad"] == {"kind": "fasttext", "better": "low"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"label": "hq"}, "label names __label__hq; the model's labels are __label__c"),
        ({"values": {"curated": 1}}, "values lacks __label__crawl"),
    ],
)
def test_a_label_that_the_model_lacks_is_named(fasttext_file: Path, entry: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fasttext.Model(ScorerModel(name="hq", path=str(fasttext_file), **entry))


def test_text_is_on_one_line_and_keeps_its_case() -> None:
    assert fasttext.one_line(" One\nTwo\r\nthree ") == "One Two three"


def calibrated(scores: list[Path], out: Path, **settings: Any) -> Manifest:
    argv = ["--config", making.config("quality.calibrate", **settings), "--scores", *map(str, scores)]
    assert calibrate.main([*argv, "--manifest", str(out / "manifest.json")]) == 0
    return Manifest.read(out / "manifest.json")


def chosen(
    calibration: Manifest, scores: list[Path], out: Path, require: list[Any] | None = None, **settings: Any
) -> Manifest:
    """quality.select of both shards, after quality.combine."""
    made = []
    for path in scores:
        made.append(out / "combine" / path.name)
        argv = ["--config", making.config("quality.combine", require=require or []), "--scores", str(path)]
        argv += ["--calibration", str(calibration.path), "--manifest", str(made[-1])]
        assert combine.main(argv) == 0
    argv = ["--config", making.config("quality.select", **settings), "--combined", *map(str, made)]
    assert select.main([*argv, "--manifest", str(out / "select/manifest.json")]) == 0
    return Manifest.read(out / "select/manifest.json")


def test_quantiles_are_combined_and_the_best_stay(crawl: Crawl, tmp_path: Path, fasttext_file: Path) -> None:
    path = str(fasttext_file)
    both = [
        {"name": "hq", "path": path, "label": "curated"},
        {"name": "bad", "path": path, "label": "crawl", "better": "low"},
    ]
    made = fast(crawl, tmp_path / "fasttext", *both)
    found = calibrated(made, tmp_path / "calibrate")
    assert found.summary["scorers"]["hq"]["roc_auc"] == found.summary["scorers"]["bad"]["roc_auc"] == 1.0
    assert found.summary["scorers"]["hq"]["documents"] == 80 and found.summary["sampled"] == 120
    held = json.loads(found.file("quantiles.json").read_text())
    assert len(held["scorers"]["hq"]["values"]) == 1001 and held["bucket_of"] is None
    verdicts = chosen(found, made, tmp_path / "a", keep_fraction=0.25)
    assert verdicts.summary["scored"] == 80 and verdicts.counts["in"] == 120
    assert 60 <= verdicts.counts["kept"] <= 66 and set(verdicts.counts["dropped"]) == {"fraction"}
    least = chosen(found, made, tmp_path / "b", method="threshold", threshold=0.75)
    assert least.summary["threshold"] == 0.75 and abs(least.counts["kept"] - verdicts.counts["kept"]) <= 8
    some = chosen(found, made, tmp_path / "c", method="pareto", alpha=1)
    assert 45 < some.counts["kept"] < 115
    quantiles = [
        row["quantile"]
        for path in made
        for row in rows(parquet_file(tmp_path / "a/combine" / path.name))
        if not row["curated"]
    ]
    assert np.mean(quantiles) == pytest.approx(0.5, abs=0.05), "those of the crawl are uniform"


def test_another_runs_quantiles_give_the_same_scores(crawl: Crawl, tmp_path: Path, fasttext_file: Path) -> None:
    made = fast(crawl, tmp_path / "fasttext", {"name": "hq", "path": str(fasttext_file), "label": "curated"})
    whole = calibrated(made, tmp_path / "whole")
    again = calibrated(made[:1], tmp_path / "again", reference=str(whole.file("quantiles.json")))
    one, other = (json.loads(run.file("quantiles.json").read_text()) for run in (whole, again))
    assert one["scorers"] == other["scorers"] and one["fused"] == other["fused"] and again.summary["reference"]
    alone = json.loads(calibrated(made[:1], tmp_path / "alone").file("quantiles.json").read_text())
    assert alone["scorers"] != one["scorers"]
    argv = ["--config", making.config("quality.calibrate", reference=str(whole.file("quantiles.json")))]
    renamed = fast(crawl, tmp_path / "renamed", {"name": "other", "path": str(fasttext_file), "label": "curated"})
    assert calibrate.main([*argv, "--scores", *map(str, renamed), "--manifest", str(tmp_path / "x/manifest.json")]) == 1


def test_thresholds_drop_by_their_own_rules(crawl: Crawl, tmp_path: Path, fasttext_file: Path) -> None:
    made = fast(crawl, tmp_path / "fasttext", {"name": "hq", "path": str(fasttext_file), "label": "curated"})
    found = calibrated(made, tmp_path / "calibrate")
    verdicts = chosen(found, made, tmp_path, [[{"scorer": "hq", "quantile_min": 0.6}]], keep_fraction=0.5)
    assert verdicts.counts["dropped"]["hq_quantile_min"] == pytest.approx(48, abs=4)
    assert verdicts.counts["in"] == verdicts.counts["kept"] + sum(verdicts.counts["dropped"].values())
    dropped = [
        row
        for path in made
        for row in rows(verdicts.file(f"{path.name[:5]}.parquet"))
        if row["rule"] == "hq_quantile_min"
    ]
    assert all(row["value"] < row["threshold"] == 0.6 for row in dropped)


def language_scores(folder: Path, of: Callable[[str], str]) -> list[Path]:
    """Manifests as language.score writes them."""
    from crawl2llm.filters.language.score import SIGNAL
    from crawl2llm.formats.documents import Writer

    made = []
    for shard, documents in pages().items():
        path = folder / f"{shard}.parquet"
        with Writer(path, SIGNAL) as writer:
            for row in documents:
                writer.add(
                    {"id": row["id"], "source": row["source"], "language": of(row["id"]), "score": 1.0, "characters": 9}
                )
        Manifest("language.score", "test").write(folder / f"{shard}.manifest.json", [path])
        made.append(folder / f"{shard}.manifest.json")
    return made


def trained(crawl: Crawl, folder: Path, languages: list[Path], **settings: Any) -> Path:
    argv = ["--config", making.config("quality.lm", enabled=True, **settings), "--documents", *map(str, crawl[0])]
    argv += ["--verdicts", str(crawl[1]), "--languages", *map(str, languages), "--memory-mb=64"]
    assert lm.main([*argv, "--manifest", str(folder / "manifest.json")]) == 0
    return folder / "manifest.json"


def perplexed(
    crawl: Crawl, folder: Path, languages: list[Path], model: list[Path], *models: dict[str, Any]
) -> list[Path]:
    made = []
    for number, path in enumerate(crawl[0]):
        made.append(folder / path.name)
        argv = [
            "--config",
            making.config("quality.kenlm", models=list(models)),
            "--documents",
            str(path),
            "--verdicts",
            str(crawl[1]),
        ]
        argv += ["--languages", *map(str, languages[number : number + 1]), "--lm", *map(str, model)]
        assert kenlm.main([*argv, "--manifest", str(made[-1])]) == 0
    return made


@needs_kenlm
def test_a_language_model_of_curated_text(crawl: Crawl, tmp_path: Path) -> None:
    model = trained(crawl, tmp_path / "lm", [], heldout_fraction=0.2)
    made = Manifest.read(model)
    assert sorted(made.files) == ["heldout.parquet", "models/any.bin"] and 28 <= made.summary["documents"]["any"] <= 36
    scores = perplexed(crawl, tmp_path / "kenlm", [], [model])
    found = calibrated([*scores], tmp_path / "calibrate")
    assert found.summary["scorers"]["kenlm"]["roc_auc"] == 1.0, "the crawl's words are unknown to it"
    assert found.summary["bucket_of"] == "kenlm" and list(found.summary["cutoffs"]) == ["any"]
    verdicts = chosen(found, scores, tmp_path, [[{"scorer": "kenlm", "buckets": ["head"]}]], keep_fraction=1)
    assert verdicts.counts["dropped"]["kenlm_bucket"] == pytest.approx(56, abs=4)
    again = trained(crawl, tmp_path / "again", [], heldout_fraction=0.2)
    assert (tmp_path / "lm/models/any.bin").read_bytes() == (tmp_path / "again/models/any.bin").read_bytes()
    assert Manifest.read(again).files == made.files


@needs_kenlm
def test_a_model_by_language_and_ready_ones(crawl: Crawl, tmp_path: Path) -> None:
    languages = language_scores(tmp_path / "language", lambda name: "en" if int(name[-1]) < 6 else "fr")
    model = trained(crawl, tmp_path / "lm", languages, min_documents=20, heldout_fraction=0)
    made = Manifest.read(model).summary
    assert list(made["documents"]) == ["en"] and made["left_out"] == {"fr": 16}
    digest = making.folder_digest(tmp_path / "lm/models")
    ready = {"name": "wiki", "path": f"{tmp_path}/lm/models#sha256={digest}"}
    for path in perplexed(crawl, tmp_path / "kenlm", languages, [model], ready):
        for row in rows(parquet_file(path)):
            assert row["kenlm"] == row["wiki"] and (row["kenlm"] is None) == (row["language"] == "fr")


@needs_kenlm
def test_perplexity_is_that_of_the_model_file(tmp_path: Path) -> None:
    """By hand: the probabilities of a model of single words, as its ARPA file has them."""
    one = "-1\t<unk>\t0\n0\t<s>\t0\n-0.5\t</s>\t0\n-0.25\ta\t0\n"
    arpa = f"\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n{one}\n\\2-grams:\n-0.125\ta a\n\n\\end\\\n"
    (tmp_path / "en.arpa").write_text(arpa)
    found = Models(scorers.language_model_files(tmp_path)).perplexity_by_id(
        [("one", "en", "A á\n\nzz"), ("other", "fr", "a"), ("none", "en", " \n")], tmp_path
    )
    # a (0.25), a after a (0.125), end (0.5); zz unknown (1), end (0.5): five words and ends
    assert found == {"one": pytest.approx(10 ** ((0.25 + 0.125 + 0.5 + 1 + 0.5) / 5), rel=1e-5)}


@needs_kenlm
def test_pieces_of_a_ready_model(tmp_path: Path) -> None:
    import sentencepiece

    text = tmp_path / "text.txt"
    text.write_text("".join(normalize_line(sentence(n % 2 == 0, n)) + "\n" for n in range(100)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "en.sp"), vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    models = Models({"en": tmp_path / "en.arpa.bin"})
    assert models.spellers["en"]("The Proof") == "▁the ▁proof"
    pieces = tmp_path / "pieces.txt"
    pieces.write_text("".join(models.spellers["en"](line) + "\n" for line in text.read_text().splitlines()))
    (tmp_path / "sort").mkdir()
    tools.train_model(pieces, tmp_path / "en.arpa.bin", 3, [], 64)
    known, unknown = sentence(True, 3), "zebra quartz zebra"
    found = Models(scorers.language_model_files(tmp_path)).perplexity_by_id(
        [("a", "en", known), ("b", "en", unknown)], tmp_path
    )
    assert found["a"] < found["b"]


def test_text_is_normalised_as_cc_net() -> None:
    assert normalize_line(" Élan… 2026，“Ça”\x07 ") == 'elan... 0000,"ca"'
    assert unicodedata.normalize("NFC", normalize_line("Ａ한")) == "ａ한"
    assert spaced_words("It's <s> 42% of 東京.") == "it's < s > 00 % of 東 京 ."


@pytest.mark.parametrize(
    ("quality", "words"),
    [
        ({"fasttext": {"models": [{"name": "a", "path": "x"}]}}, "a has neither of label and values"),
        ({"fasttext": {"models": [{"name": "a", "path": "x", "label": "b", "values": {"b": 1}}]}}, "a has both"),
        ({"fasttext": {"models": [{"name": "trained", "path": "x", "label": "b"}]}}, "called 'trained', which is taken"),
        ({"fasttext": {"models": [{"name": "a", "path": "x", "label": "b"}] * 2}}, "called 'a', which is taken"),
        ({"kenlm": {"models": [{"name": "a", "path": "x"}]}}, "without a language model"),
        ({"transformers": {"models": [{"name": "a", "path": "x"}]}}, "no config.json"),
        ({"calibrate": {"trained": False}}, "there is no other scorer"),
        ({"lm": {"enabled": True}, "calibrate": {"weights": {"edu": 1}}}, "'edu', which is no scorer of this run; its scorers are trained"),
        ({"combine": {"require": [[{"scorer": "trained", "min": 0.5}]]}}, "the only scorer"),
        ({"lm": {"enabled": True}, "combine": {"require": [[{"scorer": "kenlm"}]]}}, "no measure"),
        ({"lm": {"enabled": True}, "combine": {"require": [[{"scorer": "trained", "buckets": ["head"]}]]}}, "those are of kenlm"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_a_run(quality: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        scorers.check_scorers(config.validate({"quality": quality}))
    scorers.check_scorers(config.validate({"quality": quality, "filters": ["language"]}))


def test_steps_are_used_where_they_are_asked_for() -> None:
    def used(**quality: Any) -> set[str]:
        return {
            step[8:] for step in steps.used_steps(config.validate({"quality": quality})) if step.startswith("quality.")
        }

    assert used() == {"train", "score", "select"}
    model = [{"name": "hq", "path": "x", "label": "hq"}]
    assert used(fasttext={"models": model}) == used() | {"fasttext", "calibrate", "combine"}
    assert used(fasttext={"models": model}, calibrate={"trained": False}) == {
        "fasttext",
        "calibrate",
        "combine",
        "select",
    }
    assert used(lm={"enabled": True}) == used() | {"lm", "kenlm", "calibrate", "combine"}
    assert used(ngrams={"number": 3}) == used() | {"ngrams"}


def test_programs_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tools.KENLM.variable, str(tmp_path / "none"))
    with pytest.raises(
        InputError, match=r"quality\.lm\.enabled is true, and KenLM's programs are not in .*none: .* make kenlm-tools"
    ):
        tools.check_tools(config.validate({"quality": {"lm": {"enabled": True}}}))
    tools.check_tools(config.validate({}))
