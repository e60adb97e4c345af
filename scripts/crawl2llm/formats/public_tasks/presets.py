"""Public tasks by name: the definition of lm-evaluation-harness, the files and columns that it needs, and how the result is read.

Prompts, choices and metrics are those of the harness's own YAML files (`lm_eval/tasks`). Rows are given in the columns of the data sets on
the Hugging Face hub, which the definitions expect, or in those of llm-foundry's `local_data`, of which they are rebuilt.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.formats.public_tasks.task_files import (
    FILLED,
    LABEL,
    LABELED,
    TEXT,
    TRUTH,
    Columns,
    Row,
    at_most_texts,
    exactly_texts,
    one_of,
    place_in,
)

SUM, PER_CHARACTER, PASS = "acc", "acc_norm", "pass@1"
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Layout:
    """Columns that a file may have, and how a row of them becomes one of those that the definition expects."""

    columns: Columns
    row: Callable[[Row], Row] = lambda row: row


@dataclass(frozen=True)
class Preset:
    """definition: a YAML file below lm_eval/tasks; `{}` stands for what the column `part` holds. files, shot_files: names without ending.

    headline: the metric that `accuracy` is, with the filter's name where it has one. shots: examples before each item, as published.
    in_several_files: rows are in several files. hub: the split of the data set on the hub that the items are of, and that of the examples.
    runs_code: answers are programs, which are right if they pass their tests.
    """

    definition: str
    files: tuple[str, ...]
    layouts: tuple[Layout, ...]
    headline: str = SUM
    shots: int = 0
    shot_files: tuple[str, ...] = ()
    part: str = ""
    in_several_files: bool = False
    hub: tuple[str, str] = ("validation", "")
    configs: tuple[str, ...] = field(default=())  # of the hub's data set, where the definition's own is not all
    runs_code: bool = False


def query_layout(prefix: str, name: str) -> Layout:
    """llm-foundry's `query`, `choices`, `gold` as a question with labeled choices; the query begins with `prefix`."""

    def convert_row(source: Row) -> Row:
        labels = list(LETTERS[: len(source["choices"])])
        question = source["query"].removeprefix(prefix).strip()
        choices = {"text": source["choices"], "label": labels}
        return {name: question, "choices": choices, "answerKey": labels[int(source["gold"])]}

    return Layout({"query": FILLED, "choices": at_most_texts(len(LETTERS)), "gold": place_in("choices")}, convert_row)


def integer_column(name: str) -> Callable[[Row], Row]:
    """Makes 1.0 and "1" in a column 1: lm-eval takes text there as an answer and not as its place."""
    return lambda row: {**row, name: int(row[name])}


def _hellaswag_row(row: Row) -> Row:
    """The definition joins these again and cleans them as they were cleaned before, which changes nothing."""
    label, _, rest = row["query"].partition(": ")
    return {
        "activity_label": label,
        "ctx_a": rest,
        "ctx_b": "",
        "endings": row["choices"],
        "label": str(int(row["gold"])),
    }


def _lambada_row(row: Row) -> Row:
    return {"text": f"{row['context']} {row['continuation']}"}


def _triviaqa_row(row: Row) -> Row:
    """The definition writes a question mark of its own; the hub's questions have one, too."""
    question = row["context"].removeprefix("Question: ").removesuffix("\nAnswer:")
    return {"question": question, "answer": {"aliases": row["aliases"]}}


def _gsm8k_row(row: Row) -> Row:
    return {"question": row["context"], "answer": f"{row['chain_of_thought']}\n#### {row['answer']}"}


LABELED_QUESTION = Layout({"question": FILLED, "choices": LABELED, "answerKey": LABEL})
FIVE_CHOICES = (
    "{text: [five texts], label: [A, B, C, D, E]}",
    lambda value, row: LABELED[1](value, row) and value["label"] == list(LETTERS[:5]),
)
SOLUTION = (
    "text that ends with `#### ` and a number",
    lambda value, row: isinstance(value, str) and bool(re.search(r"#### -?[\d.,]+\s*$", value)),
)
MMLU = Layout(
    {"subject": FILLED, "question": FILLED, "choices": exactly_texts(4), "answer": place_in("choices")},
    integer_column("answer"),
)
TEXTS = (
    "list of texts",
    lambda value, row: (
        isinstance(value, list) and bool(value) and all(isinstance(text, str) and text for text in value)
    ),
)
ALIASES = (
    "{aliases: [texts]}",
    lambda value, row: isinstance(value, dict) and TEXTS[1](value.get("aliases"), row),
)
HUMANEVAL: Columns = {
    "prompt": FILLED,
    "canonical_solution": TEXT,
    "test": ("text that defines check", lambda value, row: "def check(" in value),
    "entry_point": ("the name of a function", lambda value, row: value.isidentifier()),
}
PROGRAMS = Layout(HUMANEVAL, lambda row: {key: row[key] for key in HUMANEVAL})
ARC = (LABELED_QUESTION, query_layout("Question: ", "question"))
SENTENCE_PAIR: Columns = {"sentence_good": FILLED, "sentence_bad": FILLED}

PRESETS: dict[str, Preset] = {
    "hellaswag": Preset(
        "hellaswag/hellaswag.yaml", ("hellaswag_validation", "hellaswag", "hellaswag_val_1000"),
        (Layout({"activity_label": TEXT, "ctx_a": TEXT, "ctx_b": TEXT, "endings": exactly_texts(4), "label": place_in("endings")},
                lambda row: {**row, "label": str(int(row["label"]))}),
         Layout({"query": FILLED, "choices": exactly_texts(4), "gold": place_in("choices")}, _hellaswag_row)),
        PER_CHARACTER,
    ),
    "arc_easy": Preset(
        "arc/arc_easy.yaml", ("arc_easy", "ai2_arc_ARC-Easy_test", "ARC-Easy-Test", "ai2_arc_ARC-Easy_validation"), ARC, hub=("test", "")
    ),
    "arc_challenge": Preset(
        "arc/arc_challenge.yaml",
        ("arc_challenge", "ai2_arc_ARC-Challenge_test", "ARC-Challenge-Test", "ai2_arc_ARC-Challenge_validation"),
        ARC, PER_CHARACTER, hub=("test", ""),
    ),
    "piqa": Preset(
        "piqa/piqa.yaml", ("piqa_validation", "piqa"),
        (Layout({"goal": TEXT, "sol1": FILLED, "sol2": FILLED, "label": one_of(0, 1)}, integer_column("label")),), PER_CHARACTER,
    ),
    "winogrande": Preset(
        "winogrande/default.yaml", ("winogrande_validation", "winogrande_winogrande_xl_validation", "winogrande"),
        (Layout({"sentence": ("text with `_`", lambda value, row: "_" in value), "option1": FILLED, "option2": FILLED,
                 "answer": one_of("1", "2")}),),
    ),
    "lambada": Preset(
        "lambada/lambada_openai.yaml", ("lambada_openai_test", "lambada_openai", "lambada_test", "lambada"),
        (Layout({"text": ("text of two words or more", lambda value, row: len(value.split()) > 1)}),
         Layout({"context": FILLED, "continuation": FILLED}, _lambada_row)), hub=("test", ""),
    ),
    "boolq": Preset(
        "super_glue/boolq/default.yaml", ("boolq_validation", "super_glue_boolq_validation", "boolq"),
        (Layout({"passage": FILLED, "question": FILLED, "label": TRUTH}, lambda row: {**row, "label": int(row["label"])}),
         Layout({"passage": FILLED, "question": FILLED, "answer": TRUTH}, lambda row: {**row, "label": int(row["answer"])})),
    ),
    "openbookqa": Preset(
        "openbookqa/openbookqa.yaml", ("openbookqa_test", "openbook_qa", "openbookqa_validation", "openbookqa"),
        (Layout({"question_stem": FILLED, "choices": LABELED, "answerKey": LABEL}), query_layout("", "question_stem")),
        PER_CHARACTER, hub=("test", ""),
    ),
    "copa": Preset(
        "super_glue/copa/default.yaml", ("copa_validation", "super_glue_copa_validation", "copa"),
        (Layout({"premise": FILLED, "choice1": FILLED, "choice2": FILLED, "question": one_of("cause", "effect"), "label": one_of(0, 1)},
                integer_column("label")),),
    ),
    "commonsense_qa": Preset(
        "commonsense_qa/default.yaml", ("commonsense_qa_validation", "commonsense_qa"),
        (Layout({"question": FILLED, "choices": FIVE_CHOICES, "answerKey": LABEL}),),
    ),
    "sciq": Preset(
        "sciq/sciq.yaml", ("sciq_test", "sciq_validation", "sciq"),
        (Layout({"question": FILLED, "support": TEXT, "correct_answer": FILLED, "distractor1": FILLED, "distractor2": FILLED,
                 "distractor3": FILLED}),), hub=("test", ""),
    ),
    "siqa": Preset(
        "siqa/siqa.yaml", ("social_i_qa_validation", "siqa_validation", "siqa"),
        (Layout({"context": FILLED, "question": FILLED, "answerA": FILLED, "answerB": FILLED, "answerC": FILLED,
                 "label": one_of("1", "2", "3")}),),
    ),
    "mmlu": Preset(  # five examples: Hendrycks et al. 2021, arXiv:2009.03300, section 4.1; the harness's own YAML says none
        "mmlu/default/mmlu_{}.yaml", ("mmlu_test",), (MMLU,),
        shots=5, shot_files=("mmlu_dev",), part="subject", hub=("test", "dev"), configs=("all",),
    ),
    "mmlu_cloze": Preset(  # the answers' texts in place of their letters
        "mmlu/continuation/mmlu_{}.yaml", ("mmlu_test",), (MMLU,), PER_CHARACTER, part="subject", hub=("test", ""), configs=("all",),
    ),
    "triviaqa": Preset(
        "triviaqa/default.yaml", ("triviaqa_validation", "triviaqa", "triviaqa_sm_sub"),
        (Layout({"question": FILLED, "answer": ALIASES}), Layout({"context": FILLED, "aliases": TEXTS}, _triviaqa_row)),
        "exact_match,remove_whitespace",
    ),
    "gsm8k": Preset(  # five examples: the definition's own num_fewshot
        "gsm8k/gsm8k.yaml", ("gsm8k_test", "gsm8k"),
        (Layout({"question": FILLED, "answer": SOLUTION}),
         Layout({"context": FILLED, "chain_of_thought": FILLED, "answer": FILLED}, _gsm8k_row)),
        "exact_match,strict-match", shots=5, shot_files=("gsm8k_train",), hub=("test", "train"),
    ),
    **{
        name: Preset(
            f"humaneval/{name}.yaml", ("humaneval_test", "HumanEval", "human_eval"), (PROGRAMS,), PASS, hub=("test", ""), runs_code=True
        )
        for name in ("humaneval", "humaneval_instruct")
    },
    "blimp": Preset(
        "blimp/{}.yaml", ("blimp",), (Layout({**SENTENCE_PAIR, "UID": FILLED}),),
        part="UID", in_several_files=True, hub=("train", ""),
    ),
}  # fmt: skip


def code_presets(names: Iterable[str]) -> tuple[str, ...]:
    """Those of some tasks whose answers are programs."""
    return tuple(name for name in names if name in PRESETS and PRESETS[name].runs_code)


def definitions_folder() -> Path:
    """The folder of lm-evaluation-harness's task definitions; nothing of it is imported. Raises InputError if it is not installed."""
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("lm-evaluation-harness (lm_eval) is not installed: its task definitions are read from there")
    return Path(next(iter(spec.submodule_search_locations))) / "tasks"


def definition_parts(preset: Preset) -> list[str]:
    """What may stand for `{}` in a preset's definition: MMLU's subjects, BLiMP's phenomena. [""] of one that is whole."""
    if not preset.part:
        return [""]
    before, after = preset.definition.split("{}")
    files = sorted(definitions_folder().glob(f"{before}*{after}"))
    names = [str(path.relative_to(definitions_folder()))[len(before) : -len(after)] for path in files]
    return [name for name in names if not name.startswith("_")]


def item_file_names(preset: Preset) -> tuple[str, ...]:
    """The names that files of a preset's items may have."""
    return (*preset.files, *definition_parts(preset)) if preset.in_several_files else preset.files
