"""What forget follows: every step of the workflow, by planted manifests, and every manifest of a complete run."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.chain import filter_order, model_registry, steps
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.commands.trace import lineage
from crawl2llm.commands.trace.lineage import Lineage
from crawl2llm.core.manifest import Manifest

TASKS = {"shard": "00000", "band": "00", "part": "000", "model": "sft", "contender": "main-rung1", None: ""}
# They read no document: where documents come from (forget finds the texts of synthesize by the documents themselves, and the source files
# are the reader's own), public tasks, and the sets that are searched for.
FIRST = {
    steps.CRAWL, steps.LIST, steps.FETCH, *steps.SYNTHESIZE, "evaluate.stage", "decontaminate.index", model_registry.PUBLISHED_STEP,
}  # fmt: skip


def key(step: str) -> str:
    return f"{step} {TASKS[steps.STEPS[step].per]}".rstrip()


def place(step: str) -> Path:
    task = TASKS[steps.STEPS[step].per]
    return Path("results/main") / steps.folder_of(step) / (f"{task}.manifest.json" if task else "manifest.json")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A result of every step, made from results of all that the table of steps says that it reads; its manifest by step."""
    monkeypatch.chdir(tmp_path)
    for step, facts in steps.STEPS.items():
        path = place(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.parent / "data"
        data.write_text(f"made by {step}")
        every = list(filter_order.FILTERS)
        read = dict.fromkeys(
            [
                *steps.resolve_needs(step, every),
                *(steps.resolve_needs(step, every, of_main=True) if facts.common else ()),
            ]
        )
        inputs = {key(need): {"data": str(Manifest.read_unchecked(place(need)).digest_of("data"))} for need in read}
        Manifest(step, "x", inputs=inputs, sources={"all": "y"}).write(path, [data])
    return {step: place(step) for step in steps.STEPS}


def test_every_step_is_in_the_lineage_of_a_document(planted: dict[str, Path]) -> None:
    made = Lineage()
    before = made.made_from([planted[DOCUMENTS]], lineage.enters_documents)
    after = made.made_from([planted[lineage.CORPUS]], lineage.enters_training)
    assert {one.step for one in before | after} == steps.STEPS.keys() - FIRST
    assert {one.step for one in after} >= {
        *{*lineage.TRAININGS} - FIRST,
        model_registry.EXPORT_STEP,
        *(step for step, facts in steps.STEPS.items() if facts.per == "model" and facts.tasks),
        *steps.PAGES,
    }
    assert not made.unknown_results()
    assert not {one.step for one in made.made_from([planted[lineage.CORPUS]], lineage.enters_heldout)} & {
        *lineage.TRAININGS
    }


def test_a_document_that_is_not_in_the_corpus_is_in_no_model(planted: dict[str, Path]) -> None:
    found = {one.step for one in Lineage().made_from([planted[DOCUMENTS]], lineage.enters_documents)}
    assert not found & {
        *lineage.TRAININGS,
        model_registry.EXPORT_STEP,
        lineage.CORPUS,
        "tokenize.encode",
        "evaluate.model",
    }
    assert {"corpus.split", "dedup.export", "report.inspect", "report.render"} < found


def test_what_was_made_from_what_is_not_there_any_more_is_not_known(planted: dict[str, Path]) -> None:
    data = planted["finetune.pairs"].parent / "data"
    data.write_text("made again, of other text")
    Manifest("finetune.pairs", "x", sources={"all": "y"}).write(planted["finetune.pairs"], [data])
    unknown = {one.step for one in Lineage().unknown_results()}
    assert (
        "finetune.train" in unknown
        and model_registry.EXPORT_STEP in unknown
        and model_registry.BASE_STEP not in unknown
    )
    planted["pretrain.train"].unlink()
    assert "compress.prune" in {one.step for one in Lineage().unknown_results()}
    planted["tokenize.train"].write_text("damaged")
    assert Lineage().unknown_results()


def test_every_result_of_a_complete_run_is_followed(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the programs themselves say that they read leads from the documents to every result."""
    monkeypatch.chdir(complete)
    made = Lineage()
    documents = [one.manifest for one in made.manifests if one.step == DOCUMENTS]
    corpus = [one.manifest for one in made.manifests if one.step == lineage.CORPUS]
    found = made.made_from(documents, lineage.enters_documents) | made.made_from(corpus, lineage.enters_training)
    assert {one.step for one in made.manifests.keys() - found} == {steps.CRAWL} and not made.unknown_results()
