"""Results of models that the config no longer has are set aside, whole, and come back where they are what the config asks for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.chain.project import Project
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, digest
from crawl2llm.workflow import unused

SFT: dict[str, Any] = {"from": "base", "step": "finetune.train"}
STEP, PLACE = "finetune.train", Path("results/main/finetune/train")


def project(
    models: dict[str, Any], variants: dict[str, Any] | None = None, evaluate: dict[str, Any] | None = None
) -> Project:
    sources = [{"name": "web", "kind": "crawl"}]
    given = {"ingest": {"extract": {"sources": sources}}, "models": models, "variants": variants or {}}
    return Project(configuration.validate(given | {"evaluate": evaluate or {}}))


def made(
    of: Project,
    model: str,
    variant: str = "main",
    weights: str = "weights",
    parent: str = "",
    pairs: Path | None = None,
) -> dict[str, bytes]:
    """The result of a fine-tuning, with its record and benchmark files, as the workflow leaves it: its files by path. Its base is there.

    parent: the fine-tuned model whose weights are all that it has read; pairs: the manifest of the pairs that are.
    """
    base = Path(of.manifest_path(variant, BASE_STEP))
    base.parent.mkdir(parents=True, exist_ok=True)
    Manifest(BASE_STEP, digest(of.fingerprint(variant, BASE_STEP)), inputs={"tokenize.train": {"b": "c"}}).write(
        base, []
    )
    manifest = Path(of.manifest_path(variant, STEP, model))
    measured = manifest.parents[2] / "benchmarks/finetune/train"
    for path, text in (
        (manifest.parent / model / "model/model.safetensors", weights),
        (manifest.parent / model / "metrics.jsonl", "{}"),
        (measured / f"{model}.tsv", "s\n7.5\n"),
        (measured / f"{model}.work.tsv", "s\n75\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    fingerprint = of.fingerprint(variant, STEP, model)
    record.write(manifest, fingerprint, {})
    inputs = {"finetune.pairs": {"x": "y"}}
    if pairs:
        inputs = {"finetune.pairs": {"train.jsonl": Manifest.read_unchecked(pairs).files["train.jsonl"]["xxh3"]}}
    if parent:
        read = f"{parent}/model/model.safetensors"
        above = Manifest.read_unchecked(manifest.parent / f"{parent}.manifest.json")
        inputs = {f"{STEP} {parent}": {read: above.files[read]["xxh3"]}}
    result = Manifest(STEP, digest(fingerprint), inputs=inputs)
    result.write(manifest, [manifest.parent / model / "model/model.safetensors"])
    return files()


def evaluated(of: Project, step: str, model: str, text: str, above: Path) -> None:
    """A result of a model's step of `evaluate`, made from the only file of the manifest `above`."""
    manifest, read = Path(of.manifest_path("main", step, model)), Manifest.read_unchecked(above)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    (out := manifest.with_name(f"{model}.jsonl")).write_text(text)
    fingerprint = of.fingerprint("main", step, model)
    record.write(manifest, fingerprint, {})
    inputs = {read.key: {name: facts["xxh3"] for name, facts in read.files.items()}}
    Manifest(step, digest(fingerprint), inputs=inputs).write(manifest, [out])


def changed_pairs(text: str) -> Path:
    """The manifest of pairs with this text."""
    pairs = Path("results/main/finetune/pairs/manifest.json")
    pairs.parent.mkdir(parents=True, exist_ok=True)
    pairs.with_name("train.jsonl").write_text(text)
    Manifest("finetune.pairs", "z").write(pairs, [pairs.with_name("train.jsonl")])
    return pairs


def files() -> dict[str, bytes]:
    """The files below results/, without those of the base model."""
    return {
        str(path): path.read_bytes()
        for path in sorted(Path("results").rglob("*"))
        if path.is_file() and "pretrain" not in path.parts
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, bytes]]:
    """Starts a run of a config as far as models are concerned; gives the files below results/ after it."""
    monkeypatch.chdir(tmp_path)

    def start(of: Project) -> dict[str, bytes]:
        unused.make_moves(unused.moves_aside(of.variants))
        unused.make_moves(unused.moves_back(of))
        return files()

    return start


def test_a_model_that_the_config_no_longer_has_is_set_aside_and_comes_back(here: Callable[..., Any]) -> None:
    whole, without = project({"sft": SFT, "sft2": SFT}), project({"sft": SFT})
    made(whole, "sft")
    before = made(whole, "sft2")
    theirs = (
        "finetune/train/notes.txt", "finetune/train/my/model.safetensors", "finetune/train/manifest.json",
        "finetune/train/model/model.safetensors", "finetune/pairs/manifest.json",
    )  # fmt: skip
    for path in (Path("results/main", name) for name in theirs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("somebody's own")
    after = here(without)
    stays = {name for name in before if "sft2" not in name} | {f"results/main/{name}" for name in theirs}
    aside = after.keys() - stays
    assert stays < after.keys() and len(aside) == len(before.keys() - stays) and not (PLACE / "sft2").exists()
    (folder,) = unused.find_set_aside()
    assert (folder.step, folder.variant, folder.model) == (STEP, "main", "sft2")
    assert all(name.startswith("results/main/unused/finetune/train/sft2.") for name in aside)
    assert here(without) == after, "nothing moves twice"
    assert not unused.moves_back(project({"sft": SFT, "sft2": {**SFT, "learning_rate": 0.5}})), "other settings"

    back = here(whole)
    assert {name: held for name, held in back.items() if name in before} == before
    assert not Path("results/main/unused").exists()


def test_results_of_several_settings_lie_side_by_side_and_the_right_ones_come_back(here: Callable[..., Any]) -> None:
    kinds = [project({"sft": {**SFT, "learning_rate": rate}}) for rate in (0.1, 0.2)]
    for number, kind in enumerate(kinds):
        made(kind, "sft", weights=f"weights {number}")
        here(project({}))
    made(kinds[1], "sft", weights="of other input")  # the same settings: no result takes another one's place
    here(project({}))
    assert len(unused.find_set_aside()) == 3
    for number, kind in enumerate(kinds):
        here(kind)
        assert (PLACE / "sft/model/model.safetensors").read_text() == f"weights {number}"
        here(project({}))
        assert len(unused.find_set_aside()) == 3


def test_a_model_whose_parent_would_be_made_again_stays_aside(here: Callable[..., Any]) -> None:
    """It would come back, be made again from the other parent, and be lost."""
    sft2 = {**SFT, "from": "sft"}
    whole = project({"sft": SFT, "sft2": sft2})
    made(whole, "sft")
    made(whole, "sft2")
    here(project({}))
    assert not unused.moves_back(project({"sft": {**SFT, "learning_rate": 0.5}, "sft2": sft2}))
    assert [move.model_label for move in unused.moves_back(whole)] == ["sft", "sft2"]
    base = Path(whole.manifest_path("main", BASE_STEP))
    Manifest(BASE_STEP, "of other settings", inputs={"tokenize.train": {"b": "c"}}).write(base, [])
    assert not unused.moves_back(whole)


def test_of_results_with_other_input_those_of_the_parent_come_back(here: Callable[..., Any]) -> None:
    """The older result of a model is made from the older result of its parent, of which only the newer one comes back."""
    sft2 = {**SFT, "from": "sft"}
    whole = project({"sft2": sft2, "sft": SFT})  # a child may stand before its parent
    for name in ("older", "newer"):
        pairs = changed_pairs(name)
        made(whole, "sft", weights=f"sft of {name} pairs", pairs=pairs)
        made(whole, "sft2", weights=f"sft2 of {name} pairs", parent="sft")
        here(project({}))
    here(whole)
    assert (PLACE / "sft/model/model.safetensors").read_text() == "sft of newer pairs"
    assert (PLACE / "sft2/model/model.safetensors").read_text() == "sft2 of newer pairs"
    assert not whole.why_stale("main", STEP, ["sft2"])


@pytest.mark.parametrize("names", [("sft", "sft2"), ("sft2", "sft")])
def test_results_of_a_model_come_back_with_those_that_they_are_made_from(
    here: Callable[..., Any], names: tuple[str, str]
) -> None:
    """What a judge said of older answers stays aside: beside the newer ones it would be made again, and be lost."""
    generate, judge = "evaluate.generate", "evaluate.judge"
    models = {"sft": SFT, "sft2": {**SFT, "from": "sft"}}

    def whole() -> Project:
        judged = {"judge": {"model": "j"}, "generate": {"questions": 5}}
        return project({name: models[name] for name in names}, evaluate=judged)

    for age in ("older", "newer"):
        of = whole()
        made(of, "sft", weights=f"sft {age}", pairs=changed_pairs(age))
        made(of, "sft2", weights=f"sft2 {age}", parent="sft")
        evaluated(of, generate, "sft2", f"answers {age}", Path(of.manifest_path("main", STEP, "sft2")))
        evaluated(of, judge, "sft2", f"verdicts {age}", Path(of.manifest_path("main", generate, "sft2")))
        here(project({}))
    of = whole()
    here(of)
    assert (Path(of.manifest_path("main", judge, "sft2")).with_name("sft2.jsonl")).read_text() == "verdicts newer"
    for each in (of, whole()):  # what the first has read before results moved is no answer
        assert [each.why_stale("main", step, ["sft2"]) for step in (STEP, generate, judge)] == [None] * 3


def test_a_model_stays_aside_where_one_above_it_has_other_input(here: Callable[..., Any]) -> None:
    """The one above would be made again, and then this one: it would be lost."""
    models = {"sft": SFT, "sft2": {**SFT, "from": "sft"}, "sft3": {**SFT, "from": "sft2"}}
    whole = project(models)
    made(whole, "sft", pairs=changed_pairs("older"))
    made(whole, "sft2", parent="sft")
    made(whole, "sft3", parent="sft2")
    without = project({"sft": SFT})
    here(without)
    changed_pairs("newer")
    assert without.why_stale("main", STEP, ["sft"]) and not unused.moves_back(project(models))
    changed_pairs("older")
    assert [move.task for move in unused.moves_back(project(models))] == ["sft2", "sft3"]

    here(project(models))
    here(project({name: models[name] for name in ("sft", "sft2")}))
    changed_pairs("newer")
    assert not unused.moves_back(project(models)), "the parent is as its own parent made it, which has other input"
    for path in (manifest := Path(whole.manifest_path("main", STEP, "sft")), record.path_of(manifest)):
        path.unlink()
    assert [move.task for move in unused.moves_back(project(models))] == ["sft3"], "what is gone is not made again"


def test_a_model_comes_back_to_the_variant_that_has_it_now(here: Callable[..., Any]) -> None:
    """What main no longer has, a variant that shared it still needs: no model is trained again for that."""
    both, one = project({"sft": SFT}, {"hot": {}}), project({}, {"hot": {"models": {"sft": SFT}}})
    before = made(both, "sft")
    assert one.manifest_path("hot", STEP, "sft").startswith("results/hot/")
    after = here(one)
    assert after == {name.replace("/main/", "/hot/"): held for name, held in before.items()}


def test_results_of_other_input_or_in_part_or_begun_stay_aside(here: Callable[..., Any]) -> None:
    whole = project({"sft": SFT})
    before = made(whole, "sft")
    here(project({}))
    pairs = Path("results/main/finetune/pairs/manifest.json")
    pairs.parent.mkdir(parents=True)
    Manifest("finetune.pairs", "z").write(pairs, [])
    assert not unused.moves_back(project({"sft": SFT})), "the pairs are others"
    pairs.unlink()
    Manifest.copy_of(pairs).unlink()
    (folder,) = unused.find_set_aside()
    weights = folder.folder / "sft/model/model.safetensors"
    weights.rename(folder.folder / "lost")
    assert not unused.moves_back(whole), "a file is missing"
    (folder.folder / "lost").rename(weights)
    Path(whole.manifest_path("main", STEP, "sft")).parent.mkdir(parents=True)
    record.path_of(Path(whole.manifest_path("main", STEP, "sft"))).write_text("{}")
    assert not unused.moves_back(whole), "the model was begun again"
    record.path_of(Path(whole.manifest_path("main", STEP, "sft"))).unlink()
    assert here(whole) == before

    manifest = Path(whole.manifest_path("main", STEP, "sft"))
    Manifest.remove_with_copy(manifest)
    here(project({}))
    (folder,) = unused.find_set_aside()
    assert folder.folder.name == f"sft.{digest(whole.fingerprint('main', STEP, 'sft'))}", "known by its record"
    assert not unused.moves_back(whole)


def test_a_move_that_was_cut_off_is_made_to_its_end(here: Callable[..., Any]) -> None:
    whole, without = project({"sft": SFT}), project({})
    before = made(whole, "sft")
    for of, moves in (
        (without, lambda: list(unused.moves_aside(without.variants))),
        (whole, lambda: unused.moves_back(whole)),
    ):
        for number in range(len(before)):
            (move,) = moves()
            if number == 3:
                here(of)
                break
            first = min(
                path for path in move.files if not path.name.startswith((".sft", "sft.")) or path.suffix == ".tsv"
            )
            move.files[first].parent.mkdir(parents=True, exist_ok=True)
            first.rename(move.files[first])
        assert not moves()
    assert files() == before


def test_links_are_not_followed(here: Callable[..., Any], tmp_path: Path) -> None:
    made(project({"sft": SFT}), "sft")
    here(project({}))
    Path("results/main/unused").rename(tmp_path / "elsewhere")
    Path("results/main/unused").symlink_to(tmp_path / "elsewhere")
    assert not unused.find_set_aside() and not unused.moves_back(project({"sft": SFT}))


def test_what_a_person_reads(here: Callable[..., Any]) -> None:
    of = project({"sft": SFT}, {"hot": {"models": {"sft": {"learning_rate": 0.5}}}})
    made(of, "sft")
    made(of, "sft", "hot")
    moves = list(unused.moves_aside(project({}, {"hot": {}}).variants))
    assert re.fullmatch(r"14 files \(\d+ kB\) of the models sft, sft of hot", unused.moves_text(moves))
