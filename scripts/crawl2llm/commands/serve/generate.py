"""A run's models as they answer: a text that grows token by token, and can be stopped."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawl2llm.chain.model_registry import BASE, LANGUAGE_MODELS
from crawl2llm.chain.steps import folder_of
from crawl2llm.commands.serve import chat_tokens
from crawl2llm.commands.serve.chat_template import ChatTemplate
from crawl2llm.commands.serve.speculative import Speculation
from crawl2llm.core.errors import InputError
from crawl2llm.training import model_loading, quantized_weights
from crawl2llm.training.chat_layout import without_beginning
from crawl2llm.training.end_tokens import further_ends
from crawl2llm.training.template import CHAT

if TYPE_CHECKING:
    from crawl2llm.training.slots import SlotDrawer, TogetherDrawer

BASE_MANIFEST = "pretrain/train/manifest.json"
LEAST_TEMPERATURE = 1e-5  # below it a temperature is 0, as vLLM's is: logits over it are no numbers any more
# Of the models, also those that are made from others.
MODEL_PATTERNS = tuple(f"{folder_of(step)}/*.manifest.json" for step in LANGUAGE_MODELS)


@dataclass(frozen=True)
class GenerationRequest:
    """What is asked of a model. prompt: token ids. temperature 0 takes the likeliest token. stop: texts before which it ends.

    strip_start: without white space before its first word: the template's, between a question and its answer.
    """

    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    strip_start: bool = False


@dataclass(frozen=True)
class AnswerEnd:
    """Why a text ended, as OpenAI calls it (`stop`: the model's end token or a stop text; `length`), and how many tokens were generated."""

    reason: str
    tokens: int


def model_manifests(results: Path) -> dict[str, Path]:
    """The manifest of each model in the results of a variant, `base` first. Raises InputError if there is none."""
    manifest_of = {BASE: results / BASE_MANIFEST} if (results / BASE_MANIFEST).is_file() else {}
    paths = [path for pattern in MODEL_PATTERNS for path in sorted(results.glob(pattern)) if path.is_file()]
    manifest_of |= {name: path for path in paths if (name := model_loading.model_name(path)) != BASE}
    if not manifest_of:
        raise InputError(
            f"{results} holds no model; run the workflow first, or name the results of another variant with --results"
        )
    return manifest_of


def describe_model(manifest: Path) -> dict[str, Any]:
    """What a model is without loading it: `context` in tokens, and whether it `chats`."""
    folder = model_loading.model_folder(manifest) / "model"
    config = quantized_weights.config_of(folder)  # {} of one that cannot be read: loading it says what is wrong
    return {"context": model_loading.context_by(config.get), "chats": (folder / CHAT).is_file()}


class Model:
    """A model in memory, on the GPU if there is one.

    ahead: how tokens are said ahead. Raises ManifestError for files that are not those of its manifest, InputError for what transformers
    does not read, and as Ahead.given.
    """

    def __init__(self, manifest: Path, speculation_options: Speculation | None = None) -> None:
        _, folder = model_loading.verify_weights(manifest)
        self.model, self.tokenizer = model_loading.load_model(
            folder, "bf16" if quantized_weights.inference_device() == "cuda" else "fp32"
        )
        self.model = quantized_weights.place_model(self.model)
        self.context = model_loading.context_of(self.model.config)
        end = int(self.tokenizer.eos_token_id)
        self.ends = (end, *further_ends(self.model, end))
        self.chats = bool(self.tokenizer.chat_template)
        if self.chats:
            self.template = ChatTemplate(
                self.tokenizer.get_chat_template(), self.tokenizer.special_tokens_map, str(folder / CHAT)
            )
        self.drawer: SlotDrawer | TogetherDrawer | None = None
        self.ahead = (speculation_options or Speculation()).generate_options(manifest, self.model, self.tokenizer)

    def chat_ids(self, messages: chat_tokens.Messages) -> list[int]:
        """The token ids of a conversation as the model was trained on it, up to where its answer begins; see commands/serve/chat_tokens.py.

        Raises InputError as ChatTemplate.
        """
        special = {str(token): number for number, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        if not chat_tokens.spells_special_token(messages, special):
            return self.text_ids(without_beginning(self.tokenizer, self.template(messages)))
        backend = self.tokenizer.backend_tokenizer
        backend.encode_special_tokens = True
        try:
            return chat_tokens.conversation_ids(
                messages, special, self.template, lambda text: list(backend.encode(text, add_special_tokens=False).ids)
            )
        finally:
            backend.encode_special_tokens = False

    def text_ids(self, text: str) -> list[int]:
        """The token ids of a text; of none the end token, after which a document begins."""
        return list(self.tokenizer(text)["input_ids"]) or [self.tokenizer.eos_token_id]

    def generate_answer(
        self, generation: GenerationRequest, say: Callable[[str], None], stopped: threading.Event
    ) -> AnswerEnd:
        """Generate, and `say` each piece of text as soon as it is there, until an end, or `stopped` is set."""
        from tokenizers.decoders import DecodeStream

        from crawl2llm.training.slots import SLOT_TYPES

        stream, backend = DecodeStream(skip_special_tokens=True), self.tokenizer.backend_tokenizer
        writer = Writer(
            lambda token: "" if token in self.ends[1:] else stream.step(backend, token) or "", generation, say
        )
        if self.ahead or self.model.config.model_type not in SLOT_TYPES:
            self._generate_by_transformers(generation, writer, stopped)
        else:
            self._draw_answer(generation, writer, stopped)
        return AnswerEnd("stop" if writer.found_stop or writer.last_token in self.ends else "length", writer.tokens)

    def _draw_answer(self, generation: GenerationRequest, writer: Writer, stopped: threading.Event) -> None:
        """Hand token after token to `writer`, by the generator that alignments and evaluations have."""
        from crawl2llm.training.sampling import Choice, draw_table
        from crawl2llm.training.slots import drawer_for

        temperature = generation.temperature if generation.temperature >= LEAST_TEMPERATURE else 0.0
        choice = Choice(self.ends[0], temperature, generation.top_p, further_ends=self.ends[1:])
        if self.drawer is None:
            self.drawer = drawer_for(self.model, choice, slots=1, stride=1)
        self.drawer.set_choice(choice)
        seed = secrets.randbits(63) if generation.seed is None else generation.seed

        def write_tokens(_: int, ids: list[int]) -> bool:
            writer.take_tokens(ids)
            return not (stopped.is_set() or writer.found_stop)

        draws = draw_table(seed, [("serve",)], generation.max_tokens)
        self.drawer.draw([generation.prompt], draws, write_tokens)
        writer.end()

    def _generate_by_transformers(
        self, generation: GenerationRequest, writer: Writer, stopped: threading.Event
    ) -> None:
        """The same by transformers' `generate`, which drafts tokens, and runs types whose state it alone passes on."""
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        class Stops(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **options: Any) -> Any:
                return torch.full((1,), stopped.is_set() or writer.found_stop, device=input_ids.device)

        if generation.seed is not None:
            torch.manual_seed(generation.seed)
        sampling: dict[str, Any] = {"do_sample": False}
        if generation.temperature >= LEAST_TEMPERATURE:
            sampling = {"do_sample": True, "temperature": generation.temperature, "top_p": generation.top_p, "top_k": 0}
        prompt = torch.tensor([generation.prompt], device=self.model.device)
        with torch.inference_mode():
            self.model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=generation.max_tokens, streamer=writer,
                stopping_criteria=StoppingCriteriaList([Stops()]), eos_token_id=list(self.ends),
                pad_token_id=self.tokenizer.pad_token_id, **sampling, **self.ahead,
            )  # fmt: skip


class Writer:
    """Takes token ids, also as `generate` gives them to a streamer, and says their text: nothing from a stop text on.

    text_of: the whole characters that a token completes, given one after the other.
    """

    def __init__(
        self, text_of: Callable[[int], str], generation: GenerationRequest, say: Callable[[str], None]
    ) -> None:
        self.text_of = text_of
        self.stop, self.bare, self.say = generation.stop, generation.strip_start, say
        self.pending = ""  # may be the beginning of a stop text
        self.found_stop = False  # a stop text
        self.tokens, self.last_token, self.awaits_prompt = 0, -1, True

    def put(self, value: Any) -> None:
        """The prompt, and then token after token."""
        if self.awaits_prompt:
            self.awaits_prompt = False
            return
        self.take_tokens(value.reshape(-1).tolist())

    def take_tokens(self, tokens: Sequence[int]) -> None:
        """Several tokens, as they come where they were said ahead; none after a stop text."""
        for token in tokens:
            if self.found_stop:
                return
            self.take_token(token)

    def take_token(self, token: int) -> None:
        """One token."""
        self.tokens, self.last_token = self.tokens + 1, token
        self.write_text(self.text_of(token))

    def write_text(self, text: str) -> None:
        """Say the text as far as no stop text can begin in it."""
        if self.found_stop:
            return
        if self.bare:
            text = text.lstrip()
            self.bare = not text
        self.pending += text
        ends = [at for stop in self.stop if (at := self.pending.find(stop)) >= 0]
        self.found_stop = bool(ends)
        unsure = max((self._stop_overlap(stop) for stop in self.stop), default=0)
        sure = min(ends) if ends else len(self.pending) - unsure
        if sure:
            self.say(self.pending[:sure])
        self.pending = "" if self.found_stop else self.pending[sure:]

    def _stop_overlap(self, stop: str) -> int:
        """How many characters at the end may be the beginning of a stop text."""
        return next(
            (
                size
                for size in range(min(len(stop) - 1, len(self.pending)), 0, -1)
                if self.pending.endswith(stop[:size])
            ),
            0,
        )

    def end(self) -> None:
        """No more tokens come."""
        if self.pending and not self.found_stop:
            self.say(self.pending)
            self.pending = ""
