"""What a model writes: greedy and sampled texts for prompts, and its answers to held-out questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crawl2llm.core.console import Progress
from crawl2llm.stages.evaluate.settings import ModelSettings
from crawl2llm.training.end_tokens import further_ends
from crawl2llm.training.question_cuts import cut_prompts
from crawl2llm.training.template import Template

if TYPE_CHECKING:
    import torch


def generate_text(model: Any, tokenizer: Any, prompt: str, settings: ModelSettings, context: int, sampled: bool) -> str:
    """The text with which the model continues `prompt`, up to its end token or `max_new_tokens`.

    A prompt that leaves no room in the context is cut on its left. Sampling starts from `seed` for every text.
    """
    room = max(1, context - settings.max_new_tokens)
    ids = tokenizer(prompt)["input_ids"][-room:] or [tokenizer.eos_token_id]
    max_tokens = min(settings.max_new_tokens, max(1, context - len(ids)))
    out = continue_tokens(model, tokenizer, ids, max_tokens, settings, settings.seed if sampled else None)
    return str(tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True))


def continue_tokens(
    model: Any, tokenizer: Any, ids: list[int], max_tokens: int, settings: ModelSettings, seed: int | None
) -> torch.Tensor:
    """Token ids of `ids` and of what the model writes after them, at most `max_tokens` tokens: (1, tokens), on the model's device.

    seed: of a text that is sampled by `temperature` and `top_p`; None takes the likeliest token each time.
    """
    import torch

    input_ids = torch.tensor([ids], device=model.device)
    options: dict[str, Any] = {"do_sample": False}
    if seed is not None:
        torch.manual_seed(seed)
        options = {"do_sample": True, "top_k": 0, "temperature": settings.temperature, "top_p": settings.top_p}
    with torch.no_grad():
        return model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=max_tokens,
            eos_token_id=[tokenizer.eos_token_id, *further_ends(model, tokenizer.eos_token_id)],
            pad_token_id=tokenizer.pad_token_id,
            **options,
        )


def sample_rows(
    model: Any, tokenizer: Any, rows: list[dict[str, Any]], template: Template, settings: ModelSettings, context: int
) -> Iterator[dict[str, Any]]:
    """The rows of the samples file: every prompt greedy and sampled, then the first questions beside their reference."""
    questions = rows[: settings.questions]
    progress = Progress(2 * len(settings.prompts) + len(questions), "texts")
    for prompt in settings.prompts:
        for decoding in ("greedy", "sampled"):
            text = generate_text(model, tokenizer, prompt, settings, context, decoding == "sampled")
            yield {"kind": "prompt", "decoding": decoding, "prompt": prompt, "text": text}
            progress.add()
    room = max(1, context - settings.max_new_tokens)
    prompts = cut_prompts([row["question"] for row in questions], template, tokenizer, room)
    for row, (prompt, _) in zip(questions, prompts, strict=True):
        text = generate_text(model, tokenizer, prompt, settings, context, sampled=False)
        yield {
            "kind": "question",
            "decoding": "greedy",
            "id": row["id"],
            "question": row["question"],
            "text": text.strip(),
            "reference": row["answer"],
        }
        progress.add()
