"""Lay out conversations by a chat template, as transformers does, in a process of its own with limits.

`python -m crawl2llm.commands.serve.template_worker` says a line `ready`; then each line of its input, {template, messages, special} in
JSON, is answered by a line, {text} or {error}. A template that does not come to an end is ended by the kernel, this process with it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

SECONDS = 1.0  # of processor time for a conversation, the template's compilation included
MEMORY = 256 << 20  # bytes beside what the libraries take
LONGEST = 16 << 20  # characters of a conversation that was laid out: no model has a context for more


def limit_process() -> None:
    """Limit the memory of this process, and have the end of a time end it; it leaves no core file."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    memory, hard = size * resource.getpagesize() + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or memory < hard:
        resource.setrlimit(resource.RLIMIT_AS, (memory, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # also in the middle of one long operation, such as 10 ** 10 ** 10


def answer_to(line: str) -> dict[str, str]:
    """The answer to a question, a line of JSON."""
    try:
        question: dict[str, Any] = json.loads(line)
        rendered: Any = render_jinja_template(
            [question["messages"]],
            chat_template=question["template"],
            add_generation_prompt=True,
            **question["special"],
        )
        text = str(rendered[0][0])  # of the first conversation; beside it stand spans of answers
        if len(text) > LONGEST:
            return {"error": f"it makes a text of {len(text):,} characters; {LONGEST:,} are the most"}
        return {"text": text}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY >> 20} MiB of memory"}
    except RecursionError:
        return {"error": "it calls itself without an end"}
    except Exception as error:  # a template calls what it likes
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}


def main() -> None:
    limit_process()
    answers = open(1, "w", buffering=1, encoding="ascii", closefd=False)  # noqa: SIM115 - for as long as the process lives
    answers.write("ready\n")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        answer = json.dumps(answer_to(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(answer + "\n")


if __name__ == "__main__":
    main()
