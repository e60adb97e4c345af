"""The model card: what the Hub reads of it, and that it says what the manifests say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, metadata_load

from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import card, facts
from crawl2llm.stages.compress.sections import markdown_table

ITEMS = {"accuracy": 0.5267, "chance": 0.25, "centered": 0.369, "centered_stderr": 0.044, "items": 300}
HELDOUT = {"bits_per_byte": 1.82688, "bytes": 211081, "documents": 38}


def left(folder: Path, step: str, name: str = "", files: list[Path] | None = None, **held: Any) -> Path:
    """A manifest of a task with this summary and these counts."""
    path = folder / step.replace(".", "/") / f"{name}.manifest.json".removeprefix(".")
    path.parent.mkdir(parents=True, exist_ok=True)
    Manifest(step, "ab" * 8, **held).write(path, files or [])
    return path


@pytest.fixture
def known(tmp_path: Path) -> dict[str, list[Path]]:
    """The manifests of a small run: two sources, a filter, a model and one made from it, which chats."""
    template = tmp_path / "finetune/train/sft/model/chat_template.jinja"
    template.parent.mkdir(parents=True)
    template.write_text("{{ messages }}")
    shape = {"type": "qwen3", "hidden_size": 96, "layers": 3, "context": 256, "tie_embeddings": True}
    base = {"parameters": {"total": 556896}, "tokens": 3072000, "steps": 1500, "shape": shape, "start_from": None}
    language = {"in": 90, "kept": 60, "dropped": {"language": 10, "score": 20, "never": 0}}
    sources = {"web": {"documents": 50, "bytes": 4_000_000}, "books": {"documents": 10, "bytes": 500_000}}
    baselines = {"bigram": {**ITEMS, "accuracy": 0.5067}, "unigram": {**ITEMS, "accuracy": 0.2767}}
    items = {"tasks": {"next_word": {"baselines": baselines}}, "heldout_text": {"bits_per_byte": {"xz": 1.944}}}
    of = {"parameters": 556896, "heldout_text": HELDOUT, "items": {"next_word": ITEMS}, "questions": None}
    random = {**of, "heldout_text": {**HELDOUT, "bits_per_byte": 4.0552}}
    tuned = {"trained": True, "parameters": 556896, "heldout_loss_after": 3.798107}
    return {
        "models": [
            left(tmp_path, "finetune.train", "sft", [template], summary=tuned),
            left(tmp_path, "pretrain.train", summary=base),
        ],
        "evaluations": [left(tmp_path, "evaluate.model", name, summary=of) for name in ("base", "sft")]
        + [left(tmp_path, "evaluate.model", "untrained", summary=random)],
        "record": [
            left(tmp_path, "ingest.extract", "00000", counts={"in": 100, "kept": 90, "dropped": {"not_html": 10}}),
            left(tmp_path, "language.select", "00000", counts=language),
            left(tmp_path, "corpus.split", summary={"filters": ["language"]}),
            left(tmp_path, "corpus.write", "00000", summary={"by_source": sources}),
            left(tmp_path, "evaluate.items", summary=items),
            left(tmp_path, "finetune.pairs", summary={"by_source": {"alpaca.json": {"train": 1041, "heldout": 33}}}),
        ],
    }  # fmt: skip


def made(known: dict[str, list[Path]], name: str = "give", **changes: Any) -> tuple[facts.Facts, str]:
    """The facts of a run whose config has `changes` to the export's keys, and its card."""
    sources = [
        {"name": "web", "kind": "jsonl", "paths": ["hf://datasets/owner/pages@main/x.jsonl"], "licence": "CC-BY 4.0"},
        {"name": "books", "kind": "text", "paths": ["a.txt"]},
    ]
    entry = {"from": "sft", "step": "compress.export", **changes}
    sft = {"from": "base", "step": "finetune.train"}
    config = validate(
        {
            "models": {"sft": sft, name: entry},
            "ingest": {"extract": {"sources": sources}},
            "filters": ["language"],
            "language": {"select": {"languages": ["en", "de"]}},
        }
    )
    settings = card.Task.model_validate(settings_of("compress.export", config, name))
    found = facts.read_facts(known["models"], known["evaluations"], known["record"], settings.sources)
    return found, card.format_card(found, settings, name, [])


def test_the_hub_reads_its_front_matter(known: dict[str, list[Path]], tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(made(known, licence="apache-2.0", base_model="owner/seed")[1], encoding="utf-8")
    data = ModelCard.load(path).data
    assert (data.license, data.language, data.library_name) == ("apache-2.0", ["en", "de"], "transformers")
    assert (data.pipeline_tag, data.base_model, data.datasets) == ("text-generation", "owner/seed", ["owner/pages"])
    assert data.tags == ["crawl2llm", "conversational"] and data.model_name == "give"
    assert {(one.metric_type, one.metric_value) for one in data.eval_results} == {
        ("bits_per_byte", 1.82688),
        ("accuracy", 0.5267),
    }
    assert metadata_load(path) == data.to_dict()


def test_what_is_not_known_is_not_made_up(known: dict[str, list[Path]], tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(made({**known, "evaluations": []}, languages=[])[1], encoding="utf-8")
    data = ModelCard.load(path).data
    assert data.license == "unknown" and data.language is None and data.base_model is None
    assert data.eval_results is None
    text = path.read_text(encoding="utf-8")
    assert "Its licence was not stated" in text and "Nothing was measured" not in text.partition("## Training")[2]


def test_its_context_is_its_own_and_not_that_of_what_it_comes_from(
    known: dict[str, list[Path]], tmp_path: Path
) -> None:
    config = tmp_path / "pretrain/continue/longer/model/config.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"max_position_embeddings": 8192}')
    longer = left(tmp_path, "pretrain.continue", "longer", [config], summary={"parameters": 1, "context": 8192})
    root = left(
        tmp_path, "pretrain.published", "root", summary={"name": "a", "licence": "", "type": "llama", "context": 2048}
    )
    for parent in (root, known["models"][1]):
        assert "Its context is 8,192 tokens." in made({**known, "models": [longer, parent]})[1]
    assert "Its context is 2,048 tokens." in made({**known, "models": [known["models"][0], root]})[1]


def test_a_published_root_is_named_as_the_hub_takes_it_with_the_papers_that_it_has(
    known: dict[str, list[Path]], tmp_path: Path
) -> None:
    """The hub refuses a base_model that is no name of a model there, and a card named a NOTICE that nobody had."""
    paper, path = tmp_path / "pretrain/published/root/LICENSE", tmp_path / "README.md"
    paper.parent.mkdir(parents=True)
    paper.write_text("Apache License")
    for name, named in ("SmolLM2 135M Mix1", None), ("owner/small", "owner/small"):
        summary = {"name": name, "licence": "apache-2.0", "type": "llama", "parameters": 1}
        root = left(tmp_path, "pretrain.published", "root", [paper], summary=summary)
        path.write_text(made({**known, "models": [known["models"][0], root]})[1], encoding="utf-8")
        assert ModelCard.load(path).data.base_model == named
        text = path.read_text(encoding="utf-8")
        assert (
            f"It comes from {name}, whose licence is apache-2.0; what was published with that lies here (LICENSE)."
            in text
        )
        assert "by `pretrain.published`" not in text, "nothing here trained it"


def test_a_distilled_model_names_its_teacher(known: dict[str, list[Path]], tmp_path: Path) -> None:
    taught = left(tmp_path, "compress.distil", "taught", summary={"teacher": "sft", "parameters": 1})
    _, text = made({**known, "models": [taught, *known["models"]]})
    assert "Trained from scratch: pre-trained (base), then fine-tuned (sft), then distilled from sft (taught)." in text
    assert "| teacher | sft |" in text


def test_it_says_what_the_manifests_say(known: dict[str, list[Path]]) -> None:
    found, text = made(known)
    lines = text.splitlines()
    assert "Trained from scratch: pre-trained (base), then fine-tuned (sft)." in lines
    assert "| web | CC-BY 4.0 | 50 | 4.00 |" in lines and "| books | not stated | 10 | 0.50 |" in lines
    assert "| language | 90 | 60 | score 20, language 10 |" in lines
    assert next(found.funnel()) == ("ingest.extract", 100, 90, {"not_html": 10})
    assert [who for who, _ in found.bits_per_byte()] == ["sft", "base", "untrained", "xz"]
    assert "| **this model** | 1.8269 |" in lines and "| random weights | 4.0552 |" in lines
    assert "| next word | bigram | 50.7% | 25% | +0.369 ± 0.044 | 300 |" in lines
    assert "| held-out loss after (nats an answer token) | 3.798 |" in lines and "| tokens | 3,072,000 |" in lines
    assert "| alpaca.json | 1,041 | 33 |" in lines
    assert "| alpaca.json |" not in made({**known, "models": known["models"][1:]})[1]
    assert "| finetune.train sft | `abababababababab` |" in lines
    assert "apply_chat_template" in text and "556,896 parameters" in text


def test_it_names_all_that_a_merged_model_is_made_from(known: dict[str, list[Path]], tmp_path: Path) -> None:
    merged = {"method": "average", "merged": "1 × dpo, 2 × sft", "parameters": 556896}
    soup = left(tmp_path, "compress.merge", "soup", summary=merged)
    dpo = left(tmp_path, "align.train", "dpo", summary={"parameters": 556896, "method": "dpo"})
    text = made({**known, "models": [soup, dpo, *known["models"]]})[1]
    assert (
        "pre-trained (base), then fine-tuned (sft), then aligned (dpo), then merged (soup: 1 × dpo, 2 × sft)." in text
    )
    assert "| merged | 1 × dpo, 2 × sft |" in text and "| compress.merge soup | `abababababababab` |" in text


def test_a_model_that_was_not_trained_is_not_called_so(known: dict[str, list[Path]], tmp_path: Path) -> None:
    few = left(tmp_path / "few", "finetune.train", "sft", summary={"trained": False, "notes": ["3 pairs are too few."]})
    _, text = made({**known, "models": [few, known["models"][1]]})
    assert "**Not every step trained it**: 3 pairs are too few." in text and "has no chat template" in text


def test_a_cell_cannot_break_its_table() -> None:
    rows = markdown_table(["name", "number"], [["a|b\nc", "1.5"], ["d", "–2"]])
    assert rows[2] == "| a\\|b c | 1.5 |" and rows[1] == "| --- | --- |" and rows[-1] == ""
    assert markdown_table(["name", "number"], [["d", "2"]])[1] == "| --- | ---: |"
