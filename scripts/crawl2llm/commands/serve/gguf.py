"""A GGUF file as it answers, run by llama.cpp on the CPU (`make gguf-tools`): tokenizer, template and end token are the file's own.

Its interface is that of commands/serve/generate.py. Each answer reads its prompt anew: what was asked before changes no digit.
"""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.commands.serve import chat_tokens, gguf_header
from crawl2llm.commands.serve.chat_template import ChatTemplate
from crawl2llm.commands.serve.generate import LEAST_TEMPERATURE, AnswerEnd, GenerationRequest, Writer
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.processors import usable_cores
from crawl2llm.stages.compress import gguf_support
from crawl2llm.stages.compress.llama_worker import BATCH, LoadedModel
from crawl2llm.training import model_loading

ANY_SEED = 0xFFFFFFFF  # llama.cpp's LLAMA_DEFAULT_SEED: another one each time
# its level of messages (ggml.h). It warns of contexts that are no multiple of 256, of which nothing is wrong
ERROR_LEVEL = 4
SMALL_FILE = 16 << 20  # bytes
WALL = 60  # seconds of the clock for a header: the file may come from a slow file system
PIECE_BYTES = 64  # bytes of a token's text; a longer one is asked for again


@dataclass(frozen=True)
class Export:
    """A GGUF file of compress.export: the export's manifest, the file's type, and its name in the export's folder."""

    manifest: Path
    type: str
    file: str

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return model_loading.model_folder(self.manifest) / self.file

    def checked_path(self) -> Path:
        """The file. Raises ManifestError if it is missing or does not have its checksum: llama.cpp would end the process."""
        name = str(self.path.relative_to(self.manifest.parent))
        return Manifest.read(self.manifest, only=name).verify_files(name).file(name)


@cache
def load_library() -> Any:
    """llama.cpp's bindings; its errors are logged. Raises InputError if the tools are not there, or cannot be loaded."""
    folder = gguf_support.TOOLS.folder()
    if obstacle := gguf_support.TOOLS.problem(folder):
        raise InputError(obstacle)
    sys.path.append(str(folder / "site"))
    # Threads that spin while they wait slow each other down beside other work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise InputError(
            f"llama.cpp in {folder} cannot be loaded: {error}; remove the folder and make gguf-tools again"
        ) from error

    @llama_cpp.llama_log_callback
    def log_message(level: int, text: bytes, _: Any) -> None:
        if level == ERROR_LEVEL:
            log.error("llama.cpp: %s", text.decode(errors="replace").strip())

    llama_cpp.llama_log_set(log_message, ctypes.c_void_p(0))
    llama_cpp.kept = log_message  # for as long as the library may call it
    return llama_cpp


def describe_file(export: Export) -> dict[str, Any]:
    """What a file is, of which no weight is loaded: `context` in tokens, and whether it `chats`. {} for one that cannot be read."""
    try:
        return _read_header(export.path, export.path.stat().st_mtime_ns)
    except OSError:
        return {}
    except InputError as error:
        log.warning("%s", error)
        return {}


@cache
def _read_header(path: Path, _: int) -> dict[str, Any]:
    """What the header of a file says. A process with limits reads it, once if it can be read.

    Raises InputError if not, and the next call tries again: the tools may be there by then, or the file system may be faster.
    """
    command = [sys.executable, "-P", gguf_header.__file__, str(path)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(gguf_support.TOOLS.folder() / "site"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GGML_NO_BACKTRACE": "1",
    }
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=WALL, env=environment, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        failure = f"its header was not read within {WALL} s"
    else:
        if not finished.returncode:
            return dict(json.loads(finished.stdout))
        failure = _last_words(finished)
    raise InputError(f"llama.cpp cannot load {path}: {failure}")


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Why a process that reads a header failed."""
    if done.returncode < 0:
        return f"the process that read its header was ended by {signal.Signals(-done.returncode).name}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:500] if lines else f"the process that read its header ended with status {done.returncode}"


class Model:
    """A GGUF file in memory.

    Raises ManifestError as Export.checked_path, InputError as `load_library` and for a file that llama.cpp does not take.
    """

    def __init__(self, export: Export) -> None:
        self.api = load_library()
        # Where weights have 32 bits, keys and values have too: the text is that of transformers. Otherwise 16, llama.cpp's default.
        try:
            file = export.checked_path()
            _read_header(file, file.stat().st_mtime_ns)
            llama = LoadedModel(str(file), 0, thread_count(file.stat().st_size), exact=export.type == "f32")
        except SystemExit as error:
            raise InputError(str(error)) from error
        self.loaded, self.context = llama, int(self.api.llama_model_n_ctx_train(llama.model))
        weakref.finalize(self, llama.close)
        self.eos = int(self.api.llama_vocab_eos(llama.vocab))
        self.special = {
            self.token_bytes(token, True).decode(): token for token in range(llama.size) if self._is_special(token)
        }
        template = self.api.llama_model_chat_template(llama.model, None)
        self.chats = bool(template)
        if template:
            end = self.token_bytes(self.eos, True).decode()
            special = {"eos_token": end, "bos_token": end}
            self.template = ChatTemplate(template.decode(errors="replace"), special, str(export.path))

    def _is_special(self, token: int) -> bool:
        return bool(self.api.llama_vocab_is_control(self.loaded.vocab, token))

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """The bytes of a token; of a special one none, unless they are asked for."""
        size = PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            if (length := self.api.llama_token_to_piece(self.loaded.vocab, token, buffer, size, 0, special)) >= 0:
                return buffer.raw[:length]
            size = -length

    def chat_ids(self, messages: chat_tokens.Messages) -> list[int]:
        """The token ids of a conversation up to where its answer begins; see commands/serve/chat_tokens.py.

        Raises InputError as ChatTemplate.
        """
        return chat_tokens.conversation_ids(messages, self.special, self.template, self.loaded.token_ids)

    def text_ids(self, text: str) -> list[int]:
        """The token ids of a text; of none the end token, after which a document begins."""
        return self.loaded.token_ids(text, special=True) or [self.eos]

    def generate_answer(
        self, generation: GenerationRequest, say: Callable[[str], None], stopped: threading.Event
    ) -> AnswerEnd:
        """Generate, and `say` each piece of text as soon as it is there, until an end, or `stopped` is set."""
        characters = Characters()
        writer = Writer(lambda token: characters.complete_characters(self.token_bytes(token)), generation, say)
        sampler = self._build_sampler(generation)
        try:
            self.loaded.clear_memory()
            for start in range(0, len(generation.prompt), BATCH):
                if stopped.is_set():
                    break
                self._read_tokens(generation.prompt[start : start + BATCH])
            while not stopped.is_set() and writer.tokens < generation.max_tokens:
                token = int(self.api.llama_sampler_sample(sampler, self.loaded.context, -1))
                writer.take_token(token)
                if token == self.eos or writer.found_stop or writer.tokens == generation.max_tokens:
                    break
                self._read_tokens([token])
        finally:
            self.api.llama_sampler_free(sampler)
        writer.end()
        return AnswerEnd("stop" if writer.found_stop or writer.last_token == self.eos else "length", writer.tokens)

    def _read_tokens(self, ids: Sequence[int]) -> None:
        """Have the model read tokens after those that it has read; logits are of the last."""
        token_array = (ctypes.c_int32 * len(ids))(*ids)
        if status := self.api.llama_decode(self.loaded.context, self.api.llama_batch_get_one(token_array, len(ids))):
            raise RuntimeError(f"llama.cpp cannot read {len(ids)} tokens: status {status}")

    def _build_sampler(self, generation: GenerationRequest) -> Any:
        """What takes a token of the logits, as transformers does: the likeliest, or by temperature, then top_p."""
        api = self.api
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        if generation.temperature < LEAST_TEMPERATURE:
            steps = [api.llama_sampler_init_greedy()]
        else:
            seed = ANY_SEED if generation.seed is None else generation.seed % ANY_SEED
            top = [api.llama_sampler_init_top_p(generation.top_p, 1)] if generation.top_p < 1 else []
            steps = [api.llama_sampler_init_temp(generation.temperature), *top, api.llama_sampler_init_dist(seed)]
        for step in steps:
            api.llama_sampler_chain_add(chain, step)
        return chain


class Characters:
    """Makes characters of bytes that come one after the other; bytes at the end that are none are held back, as by `tokenizers`."""

    def __init__(self) -> None:
        self.decoder, self.pending = codecs.getincrementaldecoder("utf-8")("replace"), ""

    def complete_characters(self, new_bytes: bytes) -> str:
        """The characters that are sure after these bytes."""
        text = self.pending + self.decoder.decode(new_bytes)
        complete = text.rstrip("\ufffd")
        self.pending = text[len(complete) :]
        return complete


def thread_count(size: int) -> int:
    """How many threads run a file of `size` bytes: the cores that this process may use; of a small file one, which is faster alone.

    A token is some hundred short products, after each of which threads wait for each other.
    """
    if size < SMALL_FILE:
        return 1
    return usable_cores()
