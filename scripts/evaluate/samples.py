"""What a model writes: greedy and sampled texts for prompts, and its answers to held-out questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.finetune.template import Template
from scripts.workflow.console import Progress


def generated(model: Any, tokenizer: Any, prompt: str, settings: dict[str, Any], context: int, sampled: bool) -> str:
    """The text with which the model continues `prompt`, up to its end token or `max_new_tokens`.

    A prompt that leaves no room in the context is cut on its left. Sampling starts from `seed` for every text.
    """
    import torch

    room = max(1, context - settings["max_new_tokens"])
    ids = tokenizer(prompt)["input_ids"][-room:] or [tokenizer.eos_token_id]
    given = torch.tensor([ids], device=model.device)
    torch.manual_seed(settings["seed"])
    how = {"do_sample": True, "temperature": settings["temperature"], "top_p": settings["top_p"], "top_k": 0}
    with torch.no_grad():
        out = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=min(settings["max_new_tokens"], max(1, context - len(ids))),
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **(how if sampled else {"do_sample": False}),
        )
    return str(tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True))


def samples(
    model: Any, tokenizer: Any, rows: list[dict[str, Any]], template: Template, settings: dict[str, Any], context: int
) -> Iterator[dict[str, Any]]:
    """The rows of the samples file: every prompt greedy and sampled, then the first questions beside their reference."""
    questions = rows[: settings["questions"]]
    progress = Progress(2 * len(settings["prompts"]) + len(questions), "texts")
    for prompt in settings["prompts"]:
        for decoding in ("greedy", "sampled"):
            text = generated(model, tokenizer, prompt, settings, context, decoding == "sampled")
            yield {"kind": "prompt", "decoding": decoding, "prompt": prompt, "text": text}
            progress.add()
    for row in questions:
        text = generated(model, tokenizer, template.prompt(row["question"]), settings, context, sampled=False)
        yield {
            "kind": "question",
            "decoding": "greedy",
            "id": row["id"],
            "question": row["question"],
            "text": text.strip(),
            "reference": row["answer"],
        }
        progress.add()
