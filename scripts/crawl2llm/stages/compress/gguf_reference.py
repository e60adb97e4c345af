"""What llama.cpp's answers are compared with: transformers' own, of the same model on the same texts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress.settings import ExportSettings
from crawl2llm.training.heldout import CARRY, choose_documents, scoring_pieces
from crawl2llm.training.model_loading import load_model

CONTEXT = 1024  # most tokens of a window that is scored
TEXTS = [  # what tokenizers do differently: white space, digits, contractions, scripts, marks, code, special tokens as text
    "Hello world, don't you've I'LL",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n trailing   ",
    "3 33 333 3333 33333 3.14159 1,000 x12y 007 ½ ² ٣٤",
    "🚀 (normal) 😶\u200d🌫️ ✅ 🦙🦙 e\u0301 ﬁ",
    "я в ус не дую; ຄົນ; 我想在apple工作1314151天～; कान्ते; Ünïcödé",
    "def f(x):\n\treturn {'a': [x ** 2, -1e-3]}  # ------======= \r\n",
    "'The end', he said. 'SELF' 'theirs",  # some take contractions for such in any case
    "if x:\n    y = 12\n\n\n        z  345",
    "<|endoftext|> <|pad|> [INST] </s> <s>",
    "a" * 300 + " " * 40 + "!" * 40,
]


def own_tokenizer(folder: Path) -> Tokenizer:
    """tokenizer.json of a model's folder, as its texts were encoded: special tokens are text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()  # which some are published with
    tokenizer.no_padding()
    return tokenizer


def auto_finds_tokenizer(folder: Path) -> bool:
    """Whether AutoTokenizer, with which others load it, takes the tokenizer in a model's folder: for qwen2 it takes one of its own."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False).backend_tokenizer
    expected = own_tokenizer(folder)
    loaded.encode_special_tokens = True
    return all(loaded.encode(text).ids == expected.encode(text).ids for text in TEXTS)


class LogitReference:
    """What llama.cpp's answers are compared with: tokens of texts, and transformers' logits and loss on held-out documents."""

    def __init__(self, folder: Path, tokens: Iterable[Path], settings: ExportSettings, place: Path) -> None:
        import torch

        torch.set_num_threads(settings.threads)
        documents, _ = choose_documents(tokens, settings.max_tokens, settings.seed)
        if not documents:
            raise InputError("no held-out documents to compare a GGUF file on: raise corpus.split.validation_fraction")
        model, tokenizer = load_model(folder)
        model.eval()
        self.tokenizer = own_tokenizer(folder)
        self.eos = int(tokenizer.eos_token_id)  # config.json may have several, or that of the pre-training
        limit = getattr(model.config, "max_position_embeddings", None) or getattr(model.config, "n_positions", None)
        context = min(limit or CONTEXT, CONTEXT)
        stream = scoring_pieces(documents, self.eos, context, CARRY, by_document=True)
        self.windows = [([int(number) for number in ids], int(scored_tokens)) for ids, scored_tokens, _ in stream]
        self.documents, self.bytes = len(documents), sum(document.bytes for document in documents)
        self.scored = sum(scored for _, scored in self.windows)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        nats, logits = self._score_windows(model, settings.compared_tokens)
        self.bits = self.bits_of(nats)
        np.save(place / "logits.npy", logits)
        self.texts = [*TEXTS, *self._document_starts()]
        self.job = {
            "windows": self.windows, "texts": self.texts, "logits": str(place / "logits.npy"), "context": context,
            "threads": settings.threads,
        }  # fmt: skip

    def _score_windows(self, model: Any, limit: int) -> tuple[float, npt.NDArray[np.float32]]:
        """(negative log-likelihood of all scored tokens in nats, logits of the first `limit` positions, shape [positions, vocabulary])."""
        import torch

        lost, logit_parts, have = 0.0, [], 0
        progress = Progress(self.scored, "held-out tokens by transformers")
        with torch.inference_mode():
            for ids, scored in self.windows:
                tokens = torch.tensor([ids])
                logits = model(input_ids=tokens[:, :-1]).logits[0, -scored:].float()
                lost += float(torch.nn.functional.cross_entropy(logits, tokens[0, -scored:], reduction="sum"))
                if have < limit:
                    logit_parts.append(logits[: limit - have].numpy())
                    have += len(logit_parts[-1])
                progress.add(scored)
        return lost, np.concatenate(logit_parts)

    def _document_starts(self) -> list[str]:
        """The beginnings of the held-out documents."""
        return [self.tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in self.windows[:20]]

    def bits_of(self, nats: float) -> float:
        """Bits per byte of the held-out documents."""
        return nats / math.log(2) / self.bytes

    def check_tokens(self, token_lists: list[list[int]]) -> None:
        """Raise InputError if llama.cpp cuts a text into other tokens than the model's tokenizer."""
        for text, ids in zip(self.texts, token_lists, strict=True):
            if (expected := self.tokenizer.encode(text, add_special_tokens=False).ids) != ids:
                pairs = enumerate(zip(expected, ids, strict=False))
                at = next((number for number, (ours, theirs) in pairs if ours != theirs), min(len(expected), len(ids)))
                near = self.tokenizer.decode(expected[max(at - 5, 0) : at + 5])
                raise InputError(
                    f"llama.cpp cuts a text into other tokens than the model's tokenizer, at {near!r}: "
                    f"{ids[at : at + 5]}, not {expected[at : at + 5]}"
                )
