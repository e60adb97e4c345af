"""CORE, the 22 tasks of DCLM (arXiv:2406.11794, appendix G): their files, examples and chance levels, and what is scored of an item.

Tasks: `low_variance_datasets` of eval/additional_aggregation.json in github.com/mlfoundations/dclm; number of examples and delimiters:
eval/mmlu_and_lowvar.yaml; chance: `Random baseline` of eval/eval_meta_data_v1.csv there. Layouts and scoring are those of llm-foundry
(github.com/mosaicml/llm-foundry): the choice, or the context of a schema, with the lowest mean loss a token; of a free answer whether
greedy decoding gives it token by token. Examples are other items of the same file, here by a hash of the item's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from crawl2llm.formats.public_tasks.measures import Encode, split_tokens
from crawl2llm.formats.public_tasks.task_files import FILLED, TEXTS, Columns, Row, place_in

CHOICE, SCHEMA, FREE = "multiple_choice", "schema", "language_modeling"
EXAMPLES = "\n"  # between examples: llm-foundry's default example_delimiter
ANSWER = "\nAnswer: "
COLUMNS: dict[str, Columns] = {
    CHOICE: {"query": FILLED, "choices": TEXTS, "gold": place_in("choices")},
    SCHEMA: {"context_options": TEXTS, "continuation": FILLED, "gold": place_in("context_options")},
    FREE: {"context": FILLED, "continuation": FILLED},
}


@dataclass(frozen=True)
class Core:
    """One task: what is asked for, examples before an item, accuracy of a guess, what stands before an answer, names of its file."""

    kind: str
    shots: int
    chance: float = 0.0
    delimiter: str = " "
    files: tuple[str, ...] = ()


TASKS: dict[str, Core] = {
    "hellaswag_zeroshot": Core(CHOICE, 0, 0.25, files=("hellaswag", "hellaswag_val_1000")),
    "jeopardy": Core(FREE, 10, delimiter=ANSWER, files=("jeopardy_all",)),
    "bigbench_qa_wikidata": Core(FREE, 10),
    "arc_easy": Core(CHOICE, 10, 0.25, ANSWER),
    "arc_challenge": Core(CHOICE, 10, 0.25, ANSWER),
    "copa": Core(CHOICE, 0, 0.5),
    "commonsense_qa": Core(CHOICE, 10, 0.2),
    "piqa": Core(CHOICE, 10, 0.5, ANSWER),
    "openbook_qa": Core(CHOICE, 0, 0.25),
    "lambada_openai": Core(FREE, 0),
    "hellaswag": Core(CHOICE, 10, 0.25, files=("hellaswag", "hellaswag_val_1000")),
    "winograd": Core(SCHEMA, 0, 0.5, files=("winograd_wsc",)),
    "winogrande": Core(SCHEMA, 0, 0.5),
    "bigbench_dyck_languages": Core(FREE, 10),
    "agi_eval_lsat_ar": Core(CHOICE, 3, 0.2),
    "bigbench_cs_algorithms": Core(FREE, 10),
    "bigbench_operators": Core(FREE, 10),
    "bigbench_repeat_copy_logic": Core(FREE, 10),
    "squad": Core(FREE, 10),
    "coqa": Core(FREE, 0),
    "boolq": Core(CHOICE, 10, 0.62, ANSWER),
    "bigbench_language_identification": Core(CHOICE, 10, 0.091),
}


def file_names(name: str) -> tuple[str, ...]:
    """The names that a task's file may have."""
    return TASKS[name].files or (name,)


def contexts_and_answers(task: Core, row: Row) -> tuple[list[str], list[str], int]:
    """(contexts, answers, place of the right one) of a row, without delimiter: one of both of a free answer, one answer of a schema."""
    if task.kind == CHOICE:
        return [row["query"]], row["choices"], int(row["gold"])
    if task.kind == SCHEMA:
        return row["context_options"], [row["continuation"]], int(row["gold"])
    return [row["context"].strip()], [row["continuation"].strip()], 0


def example_text(task: Core, row: Row) -> str:
    """A row as it stands before another, with its right answer."""
    contexts, answers, gold = contexts_and_answers(task, row)
    context, answer = contexts[min(gold, len(contexts) - 1)], answers[min(gold, len(answers) - 1)]
    return f"{context}{task.delimiter}{answer}"


def few_shot_prompt(task: Core, rows: Sequence[Row], equal: Sequence[int], key: str) -> str:
    """What stands before a row: others of the same file. equal: its place and those of rows equal to it, in order, which are left out.

    key: seed and id of the item, by which they are chosen.
    """
    remaining = len(rows) - len(equal)
    generator = np.random.default_rng(xxhash.xxh3_64_intdigest(key.encode()))
    texts = []
    for place in (
        generator.choice(remaining, size=min(task.shots, remaining), replace=False).tolist() if remaining else ()
    ):
        for at in equal:
            place += place >= at
        texts.append(example_text(task, rows[place]) + EXAMPLES)
    return "".join(texts)


def tokens_to_score(task: Core, row: Row, before: str, encode: Encode, first: int) -> list[tuple[list[int], list[int]]]:
    """The tokens given and the tokens scored of each choice (context of a schema). first: the token given if there is no other."""
    contexts, answers, _ = contexts_and_answers(task, row)
    pairs = []
    for context in contexts:
        text = f"{before}{context}{task.delimiter}"
        stripped = text.rstrip()  # the white space belongs to the answer, as tokenizers have it
        context_tokens, answer_tokens = split_tokens(
            encode, stripped, [text[len(stripped) :] + answer for answer in answers]
        )
        pairs += [(context_tokens or [first], tokens) for tokens in answer_tokens]
    return pairs


def judge_item(
    task: Core, row: Row, nats: Sequence[float], greedy: Sequence[bool], tokens: Sequence[int]
) -> dict[str, Any]:
    """`right`, and which choice has the highest mean log-likelihood a token. tokens: scored, of each choice."""
    if task.kind == FREE:
        return {"right": bool(greedy[0])}
    means = [value / number for value, number in zip(nats, tokens, strict=True)]
    choice = means.index(max(means))
    return {"chosen": choice, "right": choice == contexts_and_answers(task, row)[2]}
