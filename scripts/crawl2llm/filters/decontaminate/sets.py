"""What evaluation sets ask: the rows of public tasks and of local files as question and right answer.

Of a public task's row the question and the right answer count. A passage that comes with the question does not: it is from a public page,
as a rule, and that page is no copy of the task (doc/simple-details.md of github.com/allenai/decon says the same).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical
from crawl2llm.filters.decontaminate.items import Asked
from crawl2llm.formats.documents import document_id
from crawl2llm.formats.public_tasks import core, hub, presets
from crawl2llm.formats.public_tasks.presets import PRESETS
from crawl2llm.formats.public_tasks.rows import CORE, ids, mapped, usable
from crawl2llm.formats.public_tasks.task_files import Given, Row, check, lines

LABEL = re.compile(r"^\s*(?:question|context|passage|q)\s*:", re.IGNORECASE)
ENDING = re.compile(r"\b(?:answer|a)\s*:\s*$", re.IGNORECASE)
CALCULATED = re.compile(r"<<[^<>]*+>>")  # GSM8K's marks of the calculator
TEXT = (".txt", ".text")


def _labeled(name: str) -> Callable[[Row], Asked]:
    def asked(row: Row) -> Asked:
        at = row["choices"]["label"].index(row["answerKey"].strip())
        return [row[name]], row["choices"]["text"][at]

    return asked


def _winogrande(row: Row) -> Asked:
    return [row["sentence"].replace("_", f" {row['option' + str(row['answer'])]} ", 1), row["sentence"]], ""


ASKED: dict[str, Callable[[Row], Asked]] = {
    "hellaswag": lambda row: ([f"{row['ctx_a']} {row['ctx_b']}"], row["endings"][int(row["label"])]),
    "arc_easy": _labeled("question"),
    "arc_challenge": _labeled("question"),
    "piqa": lambda row: ([row["goal"]], row[f"sol{row['label'] + 1}"]),
    "winogrande": _winogrande,
    "lambada": lambda row: ([row["text"]], ""),
    "boolq": lambda row: ([row["question"]], ""),
    "openbookqa": _labeled("question_stem"),
    "copa": lambda row: ([row["premise"]], row[f"choice{row['label'] + 1}"]),
    "commonsense_qa": _labeled("question"),
    "sciq": lambda row: ([row["question"]], row["correct_answer"]),
    "siqa": lambda row: ([f"{row['context']} {row['question']}"], row["answer" + " ABC"[int(row["label"])]]),
    "mmlu": lambda row: ([row["question"]], row["choices"][row["answer"]]),
    "gsm8k": lambda row: ([row["question"]], CALCULATED.sub("", row["answer"]).partition("####")[0]),
    "blimp": lambda row: ([row["sentence_good"]], ""),
}


def of_core(task: core.Core, row: Row) -> Asked:
    """Question and right answer of a row of CORE. What stands before the last `Question:` is a passage."""
    contexts, answers, gold = core.asked(task, row)
    context, answer = contexts[min(gold, len(contexts) - 1)], answers[min(gold, len(answers) - 1)]
    if task.kind == core.SCHEMA or task is core.TASKS["lambada_openai"]:
        return [f"{context} {answer}"], ""
    question = re.split(r"\bQuestion:", context)[-1]
    return [LABEL.sub("", ENDING.sub("", question))], answer


def of_tasks(tasks: list[str], data: list[str], from_hub: bool) -> Iterator[tuple[str, str, Asked]]:
    """(set, id, what is asked) of every row of public tasks, whatever evaluate.public.limit takes of them; ids as evaluate.stage's.

    Raises InputError where there is no data of a task, or wrong data.
    """
    of = [PRESETS[name] for name in tasks if name != CORE]
    named = [name for preset in of for name in presets.names(preset)]
    named += [file for name in core.TASKS for file in core.files(name)] if CORE in tasks else []
    given = Given(data, named)
    for name in tasks:
        if name == CORE:
            yield from _core(given)
            continue
        preset = PRESETS[name]
        files = given.named(presets.names(preset))
        files = files if preset.every else usable(files, preset)
        if not files and from_hub:
            files = hub.copied(name, preset)[0]
        if not files:
            raise InputError(
                f"decontaminate searches for {name!r}, and {data} has no file of its items: "
                f"{' or '.join(f'{one}.jsonl' for one in presets.names(preset)[:4])}; give it in evaluate.public.data, or leave the task "
                "out of decontaminate.index.tasks"
            )
        rows = mapped(files, preset)
        if preset.every:
            rows = list({canonical(row): row for row in rows}.values())
        yield from ((name, key, ASKED[name](row)) for key, row in zip(ids(name, rows), rows, strict=True))


def _core(given: Given) -> Iterator[tuple[str, str, Asked]]:
    for name, task in core.TASKS.items():
        columns = core.COLUMNS[task.kind]
        for shown, raw in given.named(core.files(name)):
            first = next(lines(shown, raw), None)
            if first and columns.keys() <= first[1].keys():
                rows = []
                for number, row in lines(shown, raw):
                    check(shown, number, row, columns)
                    rows.append({key: row[key] for key in columns})
                found = zip(ids(f"{CORE}.{name}", rows), rows, strict=True)
                yield from ((f"{CORE}.{name}", key, of_core(task, row)) for key, row in found)
                break


def of_file(entry: dict[str, Any], key: str) -> Iterator[tuple[str, str, Asked]]:
    """(set, id, what is asked) of every item of a local file: a row of JSON Lines, by its columns, or a line of text.

    entry: `path`, and perhaps `name`, `question` (columns, joined) and `answer` (a column). key: how errors call it. Raises InputError.
    """
    path = Path(entry["path"])
    name = entry.get("name") or name_of(path)
    seen = dict[str, int]()
    for question, answer in _rows(path, entry, key):
        text = canonical([question, answer])
        seen[text] = seen.get(text, -1) + 1
        yield name, document_id(name, text, str(seen[text])), ([question], answer)


def name_of(path: Path | str) -> str:
    """`own` of `data/own.jsonl.zst`: what a set is called that has no name."""
    return Path(path).name.split(".")[0]


def _rows(path: Path, entry: dict[str, Any], key: str) -> Iterator[tuple[str, str]]:
    columns, answer = entry.get("question", ["text"]), entry.get("answer")
    bare = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
    try:
        with pa.input_stream(path, compression="detect") as stream:
            raw = stream.read()
        if bare.suffix in TEXT:
            yield from ((line, "") for line in raw.decode("utf-8-sig").splitlines() if line.strip())
            return
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{key}: {path}: {error}") from error
    for number, row in lines(str(path), raw):
        found = [row.get(column) for column in (*columns, *([answer] if answer else []))]
        for column, value in zip((*columns, answer), found, strict=False):
            if not isinstance(value, str):
                raise InputError(
                    f"{key}: {path}, line {number}: column {column!r} is {value!r}; it must be text. The row has {', '.join(sorted(row))}: "
                    "`question` lists the columns of a question, `answer` names that of its answer"
                )
        texts = [str(value) for value in found]
        yield " ".join(texts[: len(columns)]), texts[-1] if answer else ""
