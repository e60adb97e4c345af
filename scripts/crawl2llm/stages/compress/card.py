"""The model card: README.md as the Hugging Face Hub expects it, a front matter of YAML and a text, from the facts of a run.

Metadata: https://huggingface.co/docs/hub/model-cards, written by huggingface_hub, which the Hub reads it with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import (
    ALIGN_STEP,
    BASE_STEP,
    CONTINUE_STEP,
    DISTIL_STEP,
    MERGE_STEP,
    PUBLISHED_STEP,
    QUANTIZE_STEP,
)
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import setting
from crawl2llm.formats.model_summaries import parameter_count
from crawl2llm.stages.compress.facts import CardSource, Facts, TrainedModel, is_from_scratch
from crawl2llm.stages.compress.gguf_support import SAFETENSORS
from crawl2llm.stages.compress.sections import (
    QUANTIZED,
    data_lines,
    evaluation_lines,
    loader_of,
    markdown_table,
    provenance_lines,
    quantization_lines,
    task_label,
    training_lines,
)
from crawl2llm.stages.compress.settings import ExportSettings
from crawl2llm.training.published import hub_folders
from crawl2llm.training.template import CHAT

KIND = "crawl2llm/heldout"  # of the model index: a data set that is the run's own
TASK = "text-generation"
CARD = "README.md"
PARENT_CARD = "README-parent.md"  # the card of the published model that an export comes from
MADE_BY = {
    BASE_STEP: "pre-trained",
    PUBLISHED_STEP: "published by others",
    CONTINUE_STEP: "pre-trained further",
    "finetune.train": "fine-tuned",
    "align.train": "aligned",
    "compress.prune": "pruned",
    DISTIL_STEP: "distilled",
    MERGE_STEP: "merged",
    QUANTIZE_STEP: "quantized",
}


TEXT_CODE = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this one, or the repository's name
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
ids = tokenizer("The function", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens=60, do_sample=False)[0]))
```
"""
CHAT_CODE = TEXT_CODE.replace(
    'ids = tokenizer("The function", return_tensors="pt")',
    'asked = [{"role": "user", "content": "What is a heap?"}]\n'
    'ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)',
)
GGUF_CODE = """\
```bash
llama-server -m {file} --port 8080
```

```python
from llama_cpp import Llama

model = Llama("{file}", n_ctx=0)  # the context that it was trained with
{call}
```
"""
CALLS = {
    False: 'print(model("The function", max_tokens=60, temperature=0)["choices"][0]["text"])',
    True: 'asked = [{"role": "user", "content": "What is a heap?"}]\n'
    'print(model.create_chat_completion(asked, max_tokens=60, temperature=0)["choices"][0]["message"]["content"])',
}


class Task(ExportSettings):
    """What the export is given."""

    sources: dict[str, CardSource] = setting(..., "The sources of the run, by name.")
    kept_languages: list[str] | None = setting(..., "What language.select keeps; null without that filter.")
    lineage: list[str] = setting(..., "The models that the card names.")


def card_metadata(facts: Facts, settings: Task, name: str, types: Iterable[str]) -> Any:
    """The front matter (huggingface_hub's ModelCardData) of an export called `name`. settings: of compress.export."""
    from huggingface_hub import EvalResult, ModelCardData

    def eval_result(dataset: str, title: str, metric: str, value: float, words: str) -> Any:
        return EvalResult(
            TASK, f"{KIND}-{dataset}", title, metric, value, task_name="Text generation", metric_name=words
        )

    results = []
    for model_name, value in facts.bits_per_byte():
        if model_name == facts.models[0].name:
            results.append(
                eval_result("text", "Held-out documents of the run", "bits_per_byte", value, "Bits per byte")
            )
    for task, rows in facts.task_results().items():
        for model_name, scores in rows:
            if model_name == facts.models[0].name:
                words = f"Accuracy (chance {scores['chance']:g})"
                results.append(
                    eval_result(
                        task, f"{task_label(task)}, of held-out documents", "accuracy", scores["accuracy"], words
                    )
                )
    ggufs = [kind for kind in types if kind != SAFETENSORS]
    languages = settings.kept_languages if settings.languages is None else settings.languages
    return ModelCardData(
        license=licence_of(facts, settings) or "unknown",
        language=languages or None,
        library_name="transformers" if SAFETENSORS in types else "gguf",
        pipeline_tag=TASK,
        base_model=settings.base_model or hub_name(facts),
        tags=[
            "crawl2llm",
            *(["gguf"] if ggufs else []),
            *quantization_tags(facts),
            *(["conversational"] if has_chat_template(facts) else []),
        ],
        datasets=facts.datasets() or None,
        model_name=name,
        eval_results=results or None,
    )


def hub_name(facts: Facts) -> str | None:
    """The name of the published root as a model of the hub; None of a name that no model can have there, which the hub would refuse."""
    name = facts.published_root.get("name", "")
    return name if hub_folders.NAME.fullmatch(name) else None


def parent_papers(root: Manifest) -> dict[str, Path]:
    """What was published with the model of a manifest, by the name that it has in an export."""
    papers = [
        path for path in map(root.file, root.files) if path.name == CARD or path.name.startswith(("LICENSE", "NOTICE"))
    ]
    return {PARENT_CARD if path.name == CARD else path.name: path for path in papers}


def licence_of(facts: Facts, settings: Task) -> str | None:
    """The licence that the config names, or else that of the published model that this one comes from."""
    return settings.licence or facts.published_root.get("licence") or None


def quantization_tags(facts: Facts) -> list[str]:
    """The tags of a quantized model: its bits, its method, and the library that reads it."""
    method = str(facts.models[0].summary.get("method"))
    return [f"{QUANTIZED[method][1]}-bit", method, library] if (library := loader_of(facts)) else []


def has_chat_template(facts: Facts) -> bool:
    """Whether the model has a chat template."""
    return any(Path(file).name == CHAT for file in facts.models[0].manifest.files)


def card_text(
    facts: Facts, settings: Task, name: str, ggufs: list[dict[str, Any]], types: Sequence[str], loader: str
) -> str:
    """The card's text. ggufs: of each GGUF file `type`, `file`, `bytes`, `bits_per_byte`, … (stages/compress/gguf.py)."""
    parts = [
        *title_lines(facts, settings, name),
        *usage_lines(facts, name, ggufs, loader if SAFETENSORS in types else ""),
        *gguf_lines(ggufs),
        *quantization_lines(facts),
        *evaluation_lines(facts),
        *training_lines(facts),
        *data_lines(facts),
        *provenance_lines(facts),
    ]
    return "\n".join(parts).rstrip() + "\n"


def title_lines(facts: Facts, settings: Task, name: str) -> Iterator[str]:
    """What the model is, in a few lines."""
    size = count_parameters(facts)
    shape = facts.root_model.summary.get("shape") or {
        key: facts.published_root[key] for key in facts.published_root if key == "type"
    }
    yield f"# {name}\n"
    kind = f", of the architecture `{shape['type']}` of transformers" if shape else ""
    yield f"A causal language model of {size:,} parameters{kind}, made by crawl2llm, a workflow from web crawl to evaluated language model."
    steps = [making_words(model) for model in facts.models[::-1]]
    origin = "Trained from scratch" if is_from_scratch(facts) else "Trained on from another model's weights"
    yield f"{origin}: {', then '.join(steps)}.\n"
    if facts.published_root:
        licence = facts.published_root["licence"]
        stated = f", whose licence is {licence}" if licence else ""
        papers = ", ".join(parent_papers(facts.root_model.manifest))
        beside = f"; what was published with that lies here ({papers})" if papers else ""
        yield f"It comes from {facts.published_root['name']}{stated}{beside}.\n"
    if licence_of(facts, settings) is None:
        yield "Its licence was not stated when it was exported.\n"
    if not all(model.summary.get("trained", True) for model in facts.models):
        yield (
            "**Not every step trained it**: "
            + " ".join(note for model in facts.models for note in model.summary.get("notes", []))
            + "\n"
        )


def making_words(model: TrainedModel) -> str:
    """How a model was made: `distilled from base (small)`, `merged (soup: 0.5 × dpo, 0.5 × sft)`."""
    words, summary = MADE_BY.get(model.step, f"made by {model.step}"), model.summary
    teacher = f" from {summary['teacher']}" if summary.get("teacher") else ""
    return f"{words}{teacher} ({': '.join(filter(None, [model.name, summary.get('merged')]))})"


def count_parameters(facts: Facts) -> int:
    """The model's parameters, as its own step says or else its evaluation."""
    return int(parameter_count(facts.models[0].summary) or facts.evaluation.get("parameters", 0))


def usage_lines(facts: Facts, name: str, ggufs: list[dict[str, Any]], loader: str) -> Iterator[str]:
    """How to load it. loader: what finds its tokenizer; "" if there are no safetensors."""
    yield "## How to use\n"
    if loader and (library := loader_of(facts)):
        yield f"Its weights are quantized; transformers needs `pip install {library}` to load it.\n"
    if loader:
        yield (CHAT_CODE if has_chat_template(facts) else TEXT_CODE).replace("AutoTokenizer", loader)
    if ggufs:
        yield "With llama.cpp, as an endpoint and a page, or from Python (`pip install llama-cpp-python`):\n"
        yield GGUF_CODE.format(file=ggufs[-1]["file"], call=CALLS[has_chat_template(facts)])
    if not has_chat_template(facts):
        yield f"{name} was not fine-tuned: it goes on with a text, and has no chat template.\n"
    context = facts.context
    if context and facts.published_root:
        yield f"Its context is {context:,} tokens. This run evaluated it on the text below, and trained it on that where a step says so.\n"
    elif context:
        yield (
            f"Its context is {context:,} tokens. It was trained on the text below{unlisted_training(facts)}; it may write what is "
            "false.\n"
        )


def unlisted_training(facts: Facts) -> str:
    """What a model was trained on that its card does not list."""
    methods = [str(model.summary.get("method")) for model in facts.models if model.step == ALIGN_STEP]
    return (
        f", and by {' and '.join(methods)} on preferences or prompts that are not listed"
        if methods
        else " and on nothing else"
    )


def gguf_lines(ggufs: list[dict[str, Any]]) -> Iterator[str]:
    """The GGUF files, and what each loses."""
    if not ggufs:
        return
    yield "## GGUF files\n"
    first = ggufs[0]
    yield (
        f"Bits per byte by llama.cpp on {first['documents']:,} held-out documents ({first['tokens']:,} tokens); transformers reaches "
        f"{first['transformers_bits_per_byte']:.4f} on them. Logits differ from those of transformers by the mean and the most that is "
        f"said, at {first['compared']:,} positions; of these, the share where the likeliest token is the same.\n"
    )
    yield from markdown_table(
        ["file", "MB", "bits per byte", "mean difference", "largest", "same token"],
        (
            [f"`{gguf['file']}`", f"{gguf['bytes'] / 1e6:,.2f}", f"{gguf['bits_per_byte']:.4f}", f"{gguf['mean_difference']:.2g}",
             f"{gguf['max_difference']:.2g}", f"{gguf['same_argmax']:.1%}"]
            for gguf in ggufs
        ),
    )  # fmt: skip
    if notes := [note for gguf in ggufs for note in gguf["notes"]]:
        yield from [f"- {note}" for note in dict.fromkeys(notes)]
        yield ""


def format_card(
    facts: Facts, settings: Task, name: str, ggufs: list[dict[str, Any]], loader: str = "AutoTokenizer"
) -> str:
    """README.md. loader: the class of transformers that finds the tokenizer."""
    types = settings.types
    return f"---\n{card_metadata(facts, settings, name, types).to_yaml()}\n---\n\n{card_text(facts, settings, name, ggufs, types, loader)}"
