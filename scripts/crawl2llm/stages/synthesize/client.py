"""Asks an endpoint for texts, several at a time, in an order that does not depend on when the replies come, until the budget is spent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.stages.synthesize import budget as costs
from crawl2llm.stages.synthesize.budget import Budget, Cost
from crawl2llm.stages.synthesize.endpoint import Reply, Writer
from crawl2llm.stages.synthesize.prompts import Asked, name_of

AHEAD = 16  # times the requests at a time: replies that wait for an earlier one
FIRST = 20  # refusals of prompts, and not one answer, after which the endpoint is taken to refuse them all


@dataclass
class _One:
    asked: Asked
    body: dict[str, Any]
    most: Cost
    reply: Reply | None = None


class Asking:
    """Asks for texts. settings: model, temperature, max_tokens, request of the step.

    `left` counts texts that were not asked for, for lack of budget; `known` the replies that were on the disk.
    """

    def __init__(self, writer: Writer, budget: Budget, settings: dict[str, Any], progress: Progress) -> None:
        self.writer, self.budget, self.settings, self.progress = writer, budget, settings, progress
        self.left = self.known = self.answered = self.refused = 0
        self.window = deque[_One]()
        self.held = Cost()  # of the window: what its replies cost, and the most of those that are not there
        self.futures: dict[str, Future[Reply]] = {}
        self.waiting: dict[str, list[_One]] = {}  # for each of these

    def replies(self, wanted: Iterable[Asked]) -> Iterator[tuple[Asked, Reply]]:
        """(text asked for, reply), in the order of `wanted`.

        Raises InputError where a request fails for good: no other is begun then, and the replies that came are kept.
        """
        rest = map(self._one, wanted)
        coming = next(rest, None)
        with ThreadPoolExecutor(self.writer.at_once, "synthesize") as pool:
            try:
                while coming or self.window:
                    while self.window and (reply := self.window[0].reply):
                        one = self.window.popleft()
                        self.held -= costs.of(reply)
                        if not self.budget.fits(self.budget.spent + one.most):
                            # Costlier than their most were some before it; what comes after is not used, whenever it was asked.
                            self.left += 1 + len(self.window) + (coming is not None) + sum(1 for _ in rest)
                            return
                        self.take(reply)
                        yield one.asked, reply
                    if coming and len(self.window) < AHEAD * self.writer.at_once and self.room(coming):
                        self.begin(coming, pool)
                        coming = next(rest, None)
                    elif self.futures:
                        self.finish()
                    elif coming and not self.window:
                        self.left += 1 + sum(1 for _ in rest)
                        return
            finally:
                self.writer.ended.set()
                for future in self.futures.values():
                    future.cancel()

    def _one(self, asked: Asked) -> _One:
        body = asked.body(self.settings)
        return _One(asked, body, costs.most(asked.prompt, self.settings["max_tokens"]))

    def room(self, coming: _One) -> bool:
        """Whether a request may be begun now: there is a thread for it, and the budget holds whatever the running ones will cost."""
        if len(self.futures) >= self.writer.at_once:
            return False
        return self.budget.fits(self.budget.spent + self.held + coming.most)

    def begin(self, one: _One, pool: ThreadPoolExecutor) -> None:
        """Ask, or take the reply that is on the disk or on its way."""
        name = name_of(one.body)
        self.window.append(one)
        self.held += one.most
        if name in self.futures:
            self.waiting[name].append(one)
        elif found := self.writer.kept(one.body):
            self.put(one, found)
            self.known += 1
            self.progress.first += 1  # it has no part in the rate
        else:
            self.futures[name], self.waiting[name] = pool.submit(self.writer.reply, one.body), [one]

    def finish(self) -> None:
        """Wait for a reply or more, and put each to its request."""
        wait(self.futures.values(), return_when=FIRST_COMPLETED)
        for name in [name for name, future in self.futures.items() if future.done()]:
            try:
                reply = self.futures.pop(name).result()
            except InputError as error:
                raise InputError(
                    f"{error}; replies that came are kept in {self.writer.cache} and will not be asked for again"
                ) from None
            for one in self.waiting.pop(name):
                self.put(one, reply)

    def put(self, one: _One, reply: Reply) -> None:
        """Put a reply to its request."""
        one.reply = reply
        self.held += costs.of(reply) - one.most

    def take(self, reply: Reply) -> None:
        """Count a reply that is used."""
        self.budget.spent += costs.of(reply)
        self.refused += bool(reply.refused)
        self.answered += not reply.refused
        if self.refused == FIRST and not self.answered:
            raise InputError(f"{self.writer.url} refuses every prompt: {reply.refused}")
        self.progress.add(note=self.budget.told())
