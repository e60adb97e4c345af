"""What evaluation sets ask: the rows of public tasks and of local files as question and right answer.

Of a public task's row the question and the right answer count. A passage that comes with the question does not: it is from a public page,
as a rule, and that page is no copy of the task (doc/simple-details.md of github.com/allenai/decon says the same).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json
from crawl2llm.filters.decontaminate.items import QuestionAndAnswer
from crawl2llm.filters.decontaminate.settings import IndexFile
from crawl2llm.formats.documents import document_id
from crawl2llm.formats.public_tasks import core, hub, presets
from crawl2llm.formats.public_tasks.presets import PRESETS
from crawl2llm.formats.public_tasks.rows import CORE, row_ids, rows_in_layout, usable_files
from crawl2llm.formats.public_tasks.task_files import Row, TaskFiles, check_row, numbered_rows

LABEL = re.compile(r"^\s*(?:question|context|passage|q)\s*:", re.IGNORECASE)
ENDING = re.compile(r"\b(?:answer|a)\s*:\s*$", re.IGNORECASE)
CALCULATED = re.compile(r"<<[^<>]*+>>")  # GSM8K's marks of the calculator
TEXT_SUFFIXES = (".txt", ".text")


def _labelled_answer(row: Row) -> str:
    answer: str = row["choices"]["text"][row["choices"]["label"].index(row["answerKey"].strip())]
    return answer


def public_question(task: str, row: Row) -> QuestionAndAnswer:
    """Question and right answer of a row of a public task, in that task's layout."""
    match task:
        case "hellaswag":
            return [f"{row['ctx_a']} {row['ctx_b']}"], row["endings"][int(row["label"])]
        case "arc_easy" | "arc_challenge" | "commonsense_qa":
            return [row["question"]], _labelled_answer(row)
        case "openbookqa":
            return [row["question_stem"]], _labelled_answer(row)
        case "piqa":
            return [row["goal"]], row[f"sol{row['label'] + 1}"]
        case "winogrande":
            filled = row["sentence"].replace("_", f" {row['option' + str(row['answer'])]} ", 1)
            return [filled, row["sentence"]], ""
        case "lambada":
            return [row["text"]], ""
        case "boolq":
            return [row["question"]], ""
        case "copa":
            return [row["premise"]], row[f"choice{row['label'] + 1}"]
        case "sciq":
            return [row["question"]], row["correct_answer"]
        case "siqa":
            return [f"{row['context']} {row['question']}"], row["answer" + " ABC"[int(row["label"])]]
        case "triviaqa":
            return [row["question"]], row["answer"]["aliases"][0]
        case "mmlu" | "mmlu_cloze":
            return [row["question"]], row["choices"][row["answer"]]
        case "gsm8k":
            return [row["question"]], CALCULATED.sub("", row["answer"]).partition("####")[0]
        case "humaneval" | "humaneval_instruct":
            return [row["prompt"]], row["canonical_solution"]
        case "blimp":
            return [row["sentence_good"]], ""
    raise KeyError(task)


def core_question(task: core.Core, row: Row) -> QuestionAndAnswer:
    """Question and right answer of a row of CORE. What stands before the last `Question:` is a passage."""
    contexts, answers, gold = core.contexts_and_answers(task, row)
    context, answer = contexts[min(gold, len(contexts) - 1)], answers[min(gold, len(answers) - 1)]
    if task.kind == core.SCHEMA or task is core.TASKS["lambada_openai"]:
        return [f"{context} {answer}"], ""
    question = re.split(r"\bQuestion:", context)[-1]
    return [LABEL.sub("", ENDING.sub("", question))], answer


def task_items(tasks: list[str], data: list[str], from_hub: bool) -> Iterator[tuple[str, str, QuestionAndAnswer]]:
    """(set, id, what is asked) of every row of public tasks, whatever evaluate.public.limit takes of them; ids as evaluate.stage's.

    Raises InputError if there is no data of a task, or wrong data.
    """
    task_presets = [PRESETS[name] for name in tasks if name != CORE]
    file_names = [name for preset in task_presets for name in presets.item_file_names(preset)]
    file_names += [file for name in core.TASKS for file in core.file_names(name)] if CORE in tasks else []
    task_data = TaskFiles(data, file_names)
    for name in tasks:
        if name == CORE:
            yield from _core_items(task_data)
            continue
        preset = PRESETS[name]
        files = task_data.files_named(presets.item_file_names(preset))
        files = files if preset.in_several_files else usable_files(files, preset)
        if not files and from_hub:
            files = hub.copy_rows(name, preset)[0]
        if not files:
            raise InputError(
                f"decontaminate searches for {name!r}, and {data} has no file of its items: "
                f"{' or '.join(f'{base_name}.jsonl' for base_name in presets.item_file_names(preset)[:4])}; give it in "
                "evaluate.public.data, or leave the task out of decontaminate.index.tasks"
            )
        rows = rows_in_layout(files, preset)
        if preset.in_several_files:
            rows = list({canonical_json(row): row for row in rows}.values())
        yield from ((name, key, public_question(name, row)) for key, row in zip(row_ids(name, rows), rows, strict=True))


def _core_items(task_data: TaskFiles) -> Iterator[tuple[str, str, QuestionAndAnswer]]:
    for name, task in core.TASKS.items():
        columns = core.COLUMNS[task.kind]
        for file_name, raw in task_data.files_named(core.file_names(name)):
            first = next(numbered_rows(file_name, raw), None)
            if first and columns.keys() <= first[1].keys():
                rows = []
                for number, row in numbered_rows(file_name, raw):
                    check_row(file_name, number, row, columns)
                    rows.append({key: row[key] for key in columns})
                keyed_rows = zip(row_ids(f"{CORE}.{name}", rows), rows, strict=True)
                yield from ((f"{CORE}.{name}", key, core_question(task, row)) for key, row in keyed_rows)
                break


def file_items(entry: IndexFile, key: str) -> Iterator[tuple[str, str, QuestionAndAnswer]]:
    """(set, id, what is asked) of every item of a local file: a row of JSON Lines, by its columns, or a line of text.

    entry: of `decontaminate.index.files`. key: how errors call it. Raises InputError.
    """
    path = Path(entry.path)
    name = entry.name or default_set_name(path)
    seen = dict[str, int]()
    for question, answer in _question_rows(path, entry, key):
        text = canonical_json([question, answer])
        seen[text] = seen.get(text, -1) + 1
        yield name, document_id(name, text, str(seen[text])), ([question], answer)


def default_set_name(path: Path | str) -> str:
    """`own` of `data/own.jsonl.zst`: what a set is called that has no name."""
    return Path(path).name.split(".")[0]


def _question_rows(path: Path, entry: IndexFile, key: str) -> Iterator[tuple[str, str]]:
    columns, answer = entry.question or ["text"], entry.answer
    bare = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
    try:
        with pa.input_stream(path, compression="detect") as stream:
            raw = stream.read()
        if bare.suffix in TEXT_SUFFIXES:
            yield from ((line, "") for line in raw.decode("utf-8-sig").splitlines() if line.strip())
            return
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{key}: {path}: {error}") from error
    for number, row in numbered_rows(str(path), raw):
        values = [row.get(column) for column in (*columns, *([answer] if answer else []))]
        for column, value in zip((*columns, answer), values, strict=False):
            if not isinstance(value, str):
                raise InputError(
                    f"{key}: {path}, line {number}: column {column!r} is {value!r}; it must be text. The row has {', '.join(sorted(row))}: "
                    "`question` lists the columns of a question, `answer` names the column of its answer"
                )
        texts = [str(value) for value in values]
        yield " ".join(texts[: len(columns)]), texts[-1] if answer else ""
