"""Questions cut so that a text with them fits: the answer stays whole, and `finetune.pairs.question_cut` says which part goes.

The same in fine-tuning, alignment, evaluation and generation. What is cut is text, at borders of tokens, so that a model reads it in the
tokens that its tokenizer makes of any text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crawl2llm.training.special_tokens import SPECIAL
from crawl2llm.training.template import LEFT, RIGHT, Template

AT_ONCE = 1000  # texts that are tokenized together
SEAM = " … "  # between two parts of a question; without it they could spell a special token together
Row = dict[str, Any]
Excess = Callable[[str], int]  # by how many tokens a text with this question is too long


def shorten_question(question: str, spans: Sequence[tuple[int, int]], kept: int, part: str) -> str:
    """A question without `part` of it. spans: of its tokens, in characters. kept: how many tokens stay, at least 1."""
    if part == LEFT:
        return question[spans[-kept][0] :]
    if part == RIGHT:
        return question[: spans[kept - 1][1]]
    head, tail = question[: spans[kept - kept // 2 - 1][1]], kept // 2
    return head + SEAM + question[spans[-tail][0] :] if tail else head


def cut_question(question: str, tokenizer: Any, excess: Excess, part: str) -> str | None:
    """The question with as little of `part` (left, middle, right) cut out as makes the text fit; None if no token of it would be left.

    The middle goes by default: instructions stand at either end of a question (as in LongBench, Bai et al. 2024, arXiv:2308.14508,
    section 4.1).
    """
    if (over := excess(question)) <= 0:
        return question
    spans = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    kept = len(spans)
    while kept > 1:  # at a border tokens join in another way, so that a cut may not be enough
        kept = max(1, kept - over)
        shorter = shorten_question(question, spans, kept, part)
        if (over := excess(shorter)) <= 0:
            return shorter
    return None


def kept_exchanges(exchanges: Sequence[str], number: int, part: str) -> list[str]:
    """`number` of the earlier exchanges of a conversation: the others are its oldest (left), its newest (right) or those between."""
    if part == LEFT:
        return list(exchanges[len(exchanges) - number :])
    tail = 0 if part == RIGHT else number // 2
    return [*exchanges[: number - tail], *exchanges[len(exchanges) - tail :]]


def cut_conversation(conversation: str, template: Template, tokenizer: Any, excess: Excess) -> str | None:
    """As `cut_question`, of a question that may stand behind earlier ones with their answers: no part of an answer joins a question.

    Whole exchanges go as long as that is enough and one stays. Then the longer one of the two questions that are left is cut, except the
    last one if it fits alone: the exchange goes then. If a cut is not enough, the last one stays alone, cut if need be.
    """
    exchanges, question = template.exchanges_of(conversation)
    if excess(conversation) <= 0 or not exchanges:
        return cut_question(conversation, tokenizer, excess, template.cut)

    def without_exchanges(number: int) -> str:
        return template.with_exchanges(kept_exchanges(exchanges, len(exchanges) - number, template.cut), question)

    fewest = bisect_left(range(len(exchanges)), True, key=lambda number: excess(without_exchanges(number)) <= 0)
    if fewest < len(exchanges):
        return without_exchanges(fewest)
    (exchange,) = kept_exchanges(exchanges, 1, template.cut)
    earlier = template.question_of(exchange)

    def with_earlier(shorter: str) -> str:
        return template.with_exchanges([shorter + exchange[len(earlier) :]], question)

    def with_last(shorter: str) -> str:
        return template.with_exchanges([exchange], shorter)

    if len(earlier) >= len(question):
        longer, whole = earlier, with_earlier
    elif excess(question) > 0:
        longer, whole = question, with_last
    else:
        return question
    shorter = cut_question(longer, tokenizer, lambda some: excess(whole(some)), template.cut)
    return cut_question(question, tokenizer, excess, template.cut) if shorter is None else whole(shorter)


def cut_prompt(question: str, template: Template, tokenizer: Any, most: int, ends: Sequence[str] = ("",)) -> str | None:
    """`cut_conversation` for a prompt of at most `most` tokens with each of the texts `ends` behind it."""

    def excess(shorter: str) -> int:
        prompt = template.prompt(shorter)
        return max(len(ids) for ids in tokenizer([prompt + end for end in ends])["input_ids"]) - most

    return cut_conversation(question, template, tokenizer, excess)


def cut_if_possible(question: str, template: Template, tokenizer: Any, most: int, ends: Sequence[str] = ("",)) -> str:
    """As `cut_prompt`; a question that cannot be cut enough stays whole."""
    shorter = cut_prompt(question, template, tokenizer, most, ends)
    return question if shorter is None else shorter


def cut_prompts(questions: Sequence[str], template: Template, tokenizer: Any, most: int) -> list[tuple[str, bool]]:
    """(prompt, whether its question is cut) of each question; one that cannot be cut to `most` tokens stays whole."""
    shorter = [cut_if_possible(question, template, tokenizer, most) for question in questions]
    return [(template.prompt(cut), cut != question) for question, cut in zip(questions, shorter, strict=True)]


@dataclass
class FittedRows:
    """Rows whose texts fit, in their order, some with a cut question."""

    rows: list[Row] = field(default_factory=list)
    cut: list[bool] = field(default_factory=list)  # whether the question of each row is cut
    left_out: int = (
        0  # rows that do not fit even with one token of the question, or spell a special token of the model's own
    )


def further_special_tokens(tokenizer: Any) -> set[str]:
    """The special tokens of a tokenizer that finetune.pairs does not look for: those of a published model, or of a ready tokenizer.

    A text that spells one would be taken for it: `<s>` of a page begins no document.
    """
    return {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special} - {*SPECIAL}


def fit_pairs(
    rows: Sequence[Row],
    template: Template,
    tokenizer: Any,
    max_length: int,
    names: Sequence[str] = ("answer",),
    also: Sequence[str] = (),
) -> FittedRows:
    """Cut the questions of rows that are longer than `max_length` tokens with one of the texts `names` and the end token behind them.

    also: names of more texts, which are to fit too if a token of the question stays then. A row that spells one of
    `further_special_tokens` is left out.
    """
    fitted, special = FittedRows(), further_special_tokens(tokenizer)
    for row, long in _with_excess(rows, template, tokenizer, max_length, [*names, *also]):
        if any(token in row[name] for token in special for name in ("question", *names, *also)):
            fitted.left_out += 1
            continue
        if not long:
            fitted.rows.append(row)
            fitted.cut.append(False)
            continue
        for some in [(*names, *also), tuple(names)] if also else [tuple(names)]:
            ends = [template.completion(row[name]) + tokenizer.eos_token for name in some]
            question = cut_prompt(row["question"], template, tokenizer, max_length, ends)
            if question is not None:
                fitted.rows.append({**row, "question": question})
                fitted.cut.append(question != row["question"])
                break
        else:
            fitted.left_out += 1
    return fitted


def _with_excess(
    rows: Sequence[Row], template: Template, tokenizer: Any, max_length: int, names: Iterable[str]
) -> Iterator[tuple[Row, bool]]:
    """(row, whether it is longer than `max_length` tokens with one of its texts `names`)."""
    text_names = list(names)
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        texts = [
            template.prompt(row["question"]) + template.completion(row[name]) + tokenizer.eos_token
            for row in some
            for name in text_names
        ]
        sizes = [len(ids) for ids in tokenizer(texts)["input_ids"]]
        for number, row in enumerate(some):
            yield row, max(sizes[number * len(text_names) :][: len(text_names)]) > max_length
