"""What lm-evaluation-harness has a model score or write, where its own way of cutting texts into tokens ends in an error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from crawl2llm.core.console import Progress
from crawl2llm.formats.public_tasks.measures import split_tokens

Place = tuple[str, int]  # the name of one of lm-eval's tasks, the number of a row in it
Request = tuple[tuple[str, str], list[int], list[int]]  # (context, choice), the tokens given, the tokens scored


class LeftOutError(Exception):
    """Rows that cannot be scored. places: these. scorable_rows: the numbers of the other rows, of each task that has some of these."""

    def __init__(self, places: set[Place], all_places: set[Place]) -> None:
        super().__init__(f"{len(places)} rows cannot be scored")
        self.places = places
        self.scorable_rows = {
            name: sorted(number for task, number in all_places - places if task == name)
            for name in sorted({task for task, _ in places})
        }


class BoundedScorer:
    """Mends and watches what lm-eval has a model score.

    A choice that the tokenizer joins to its context can be left without a token by the harness: the choices of that row are then cut by
    `measures.split_tokens`. It cuts a request that is too long on its left, which is recorded; if a choice alone is longer than the
    context, or has no token, the row does not count. All other rows are cut as the harness does.

    strict: raise LeftOutError, before anything is scored, instead of scoring such a row with a part of its choice.
    """

    def __init__(self, lm: Any, strict: bool = False) -> None:
        self.max_length, self.inner, self.eos = int(lm.max_length), lm._loglikelihood_tokens, int(lm.eot_token_id)
        self.cut_places, self.joined_places, self.left_out_places = set[Place](), set[Place](), set[Place]()
        self.lm, self.strict = lm, strict
        self.encode = lm.tok_encode
        lm._loglikelihood_tokens = self
        lm.generate_until = partial(self.generate_answers, lm, lm.generate_until, lm._model_generate)

    def clear_records(self) -> None:
        """Begin to record anew, as before a second run over the same tasks."""
        for places in (self.cut_places, self.joined_places, self.left_out_places):
            places.clear()

    def mend_requests(self, requests: Sequence[Request], places: Sequence[Place]) -> list[Request]:
        """The same requests, of which none lacks a token to score but that of a choice without one."""
        out = list(requests)
        numbers_by_context: dict[tuple[Place, str], list[int]] = defaultdict(list)
        for number, ((context, _), *_) in enumerate(requests):
            numbers_by_context[places[number], context].append(number)
        for (place, context), numbers in numbers_by_context.items():
            if all(requests[number][2] for number in numbers):
                continue
            self.joined_places.add(place)
            before, scored = split_tokens(self.encode, context, [requests[number][0][1] for number in numbers])
            for number, tokens in zip(numbers, scored, strict=True):
                out[number] = requests[number][0], before or [self.eos], tokens
        return out

    def __call__(self, requests: list[Any], **options: Any) -> Any:
        if not all(key for key, *_ in requests):  # windows of a whole text, which the harness cuts to fit
            return self.inner(requests, **options)
        places = [(instance.task_name, instance.doc_id) for instance in self.lm.requests]
        fitting = []
        for place, (key, context, scored) in zip(places, self.mend_requests(requests, places), strict=True):
            if len(scored) > self.max_length or not scored:
                self.left_out_places.add(place)
                context, scored = [self.eos], scored[-self.max_length :] or [self.eos]
            elif len(context) + len(scored) > self.max_length + 1:
                self.cut_places.add(place)
            fitting.append((key, context, scored))
        if self.strict and self.left_out_places:
            raise LeftOutError(set(self.left_out_places), set(places))
        return self.inner(fitting, **options)

    def generate_answers(self, lm: Any, inner: Any, step: Any, requests: list[Any], **_: Any) -> Any:
        """What lm-eval's own generation gives, with the project's progress lines; plain greedy answers by a loop of our own."""
        from crawl2llm.stages.evaluate import greedy_answers

        progress = Progress(len(requests), "answers generated")

        def generate_counted(context: Any, max_length: int, stop: list[str], **options: Any) -> Any:
            if greedy_answers.is_plain(lm.model, options):
                mask = options["attention_mask"]
                output = greedy_answers.write_answers(lm.model, lm.tokenizer, context, mask, max_length, stop)
            else:
                output = step(context, max_length=max_length, stop=stop, **options)
            progress.add(len(context))
            return output

        lm._model_generate = generate_counted
        return inner(requests, disable_tqdm=True)

    def answer_tokens(self, wanted: int) -> int:
        """Most tokens of an answer of which a task's definition wants so many: at most half of a context, which else had no room for it."""
        return min(wanted, self.max_length // 2)

    def is_cut(self, place: Place, prompt: str, options: Any) -> bool:
        """Whether the text of a request was longer than the context. options: of an answer that is generated; else the choice."""
        if isinstance(options, dict):
            return len(self.encode(prompt)) > self.max_length - int(options["max_gen_toks"])
        return place in self.cut_places
