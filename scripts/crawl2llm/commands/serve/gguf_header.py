"""What a GGUF file says of itself, read by llama.cpp in a process of its own with limits: `python -P gguf_header.py FILE`.

llama.cpp believes what a header says of its sizes: a damaged one, or one that somebody made for it, asks for all memory, or ends the
process. Its answer is a line of JSON: `context` in tokens, and whether there is a chat template (`chats`). Nothing of the project is
imported here, and PYTHONPATH names the tools.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

MEMORY = 2 << 30  # bytes beside what the libraries take. A vocabulary of 256,000 tokens with its merges takes a tenth
SECONDS = 20  # of processor time; that vocabulary takes one
LARGEST = 1 << 31  # tokens of a context: llama.cpp counts in 32 bits
VALUE = 256  # bytes of a value in the header that is read


def limit_process() -> None:
    """Limit this process: processor time, memory, and no core file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    memory = pages * resource.getpagesize() + MEMORY
    for resource_kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, memory),
    ):
        hard = resource.getrlimit(resource_kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource_kind, (most, hard))


def header_facts(api: Any, path: str) -> dict[str, Any]:
    """What a file is, of which no weight is loaded. Raises SystemExit with the reason if it cannot be read. api: llama.cpp's bindings."""
    options = api.llama_model_default_params()
    options.vocab_only = True
    if not (model := api.llama_model_load_from_file(os.fsencode(path), options)):
        raise SystemExit("it is not a GGUF file that llama.cpp can read")
    context = header_value(api, model, f"{header_value(api, model, 'general.architecture')}.context_length")
    if not (context.isdecimal() and 0 < int(context) < LARGEST):
        raise SystemExit(f"its context_length is {context!r}, which is not a number of tokens")
    return {"context": int(context), "chats": bool(api.llama_model_chat_template(model, None))}


def header_value(api: Any, model: Any, key: str) -> str:
    """A value of the header as text; "" if there is none."""
    buffer = ctypes.create_string_buffer(VALUE)
    api.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode(errors="replace")


if __name__ == "__main__":
    import llama_cpp

    limit_process()
    os.write(1, json.dumps(header_facts(llama_cpp, sys.argv[1])).encode())
