"""Load a fastText model for a trial, in a process of its own: what `python -P fasttext_trial.py FILE SECONDS` does.

fastText believes what a file says of its sizes: a damaged one ends the process (SIGSEGV, SIGABRT, SIGFPE), or is read for ever. So the
model is loaded here first, asked about texts, and written again: one that was cut off is read without an error, and then is longer.
Nothing of the project is imported here: the start takes 0.1 s.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from pathlib import Path
from typing import Any

# A loaded model takes about the bytes of its file, and its words, some of the bytes, up to ten times theirs.
MEMORY, TIMES = 1 << 30, 4
SECONDS = 20  # of processor time
RATE = 20_000_000  # bytes of the file, for each of which there is time beside SECONDS; loaded and written are 300 MB/s and more
WORDS = 2000  # of the model, that are asked about, spread over all
SCRIPTS = ((0x61, 0x7A), (0x400, 0x44F), (0x621, 0x64A), (0x905, 0x939), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
LINES = 50  # of random letters of each script: they are n-grams in all buckets
LONGEST = 100  # n-grams, of words and of letters; in use are up to 6. All of a text would take the square of its length


def trial_seconds(size: int) -> int:
    """Seconds of processor time for the trial of a model of `size` bytes."""
    return SECONDS + size // RATE


def limit_process(size: int, most_seconds: int) -> None:
    """Limit this process, for a model of `size` bytes: processor time, memory, and no core file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    memory = pages * resource.getpagesize() + MEMORY + TIMES * size
    for resource_kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, most_seconds),
        (resource.RLIMIT_AS, memory),
    ):
        hard = resource.getrlimit(resource_kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource_kind, (most, hard))


def trial_texts(words: list[str]) -> list[str]:
    """Lines to ask about: words of the model, and letters of several scripts."""
    some, draw = words[:: max(len(words) // WORDS, 1)], random.Random(0)  # noqa: S311 - texts of a trial
    lines = [" ".join(some[start : start + 20]) for start in range(0, len(some), 20)]
    for first, last in SCRIPTS:
        lines += ["".join(chr(draw.randint(first, last)) for _ in range(40)) for _ in range(LINES)]
    return lines


def saved_bytes(model: Any) -> int:
    """How many bytes the model has as a file; a second process counts them."""
    reader, writer = os.pipe()
    answer, answer_writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        number = 0
        while block := os.read(reader, 1 << 20):
            number += len(block)
        os.write(answer_writer, str(number).encode())
        os._exit(0)
    os.close(reader)
    os.close(answer_writer)
    model.saveModel(f"/dev/fd/{writer}")
    os.close(writer)
    return int(os.read(answer, 32) or b"-1")


def main(path: str, most_seconds: int) -> str:
    """What is wrong with the model in a file; "" if nothing is. A crash says the rest."""
    import fasttext

    size = Path(path).stat().st_size
    limit_process(size, most_seconds)
    try:
        model = fasttext.load_model(path)
        args = model.f.getArgs()
        if (longest := max(args.wordNgrams, args.maxn)) > LONGEST:
            return f"it has n-grams of {longest:,} words or letters; {LONGEST} are the most"
        words = model.get_words(on_unicode_error="replace")
        for line in trial_texts([word for word in words if "\n" not in word]):
            model.f.predict(line + "\n", -1, 0.0, "replace")
        if (saved := saved_bytes(model.f)) != size:
            return f"it has {size:,} bytes, and the model in it {saved:,}: it was cut off, or is damaged"
    except MemoryError:
        return f"it needs more memory than the {(MEMORY + TIMES * size) >> 20:,} MiB that a model of its size has"
    except (ValueError, RuntimeError, OSError) as error:
        return " ".join(str(error).split())[:200]
    return ""


if __name__ == "__main__":
    os.write(1, main(sys.argv[1], int(sys.argv[2])).encode())
