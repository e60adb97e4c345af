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
from crawl2llm.stages.synthesize.prompts import TextRequest, name_of
from crawl2llm.stages.synthesize.settings import TextSettings

WINDOW_FACTOR = 16  # times the requests at a time: replies that wait for an earlier one
FIRST_REFUSALS = 20  # refusals of prompts, and not one answer, after which the endpoint is taken to refuse them all


@dataclass
class _QueuedRequest:
    request: TextRequest
    body: dict[str, Any]
    largest_cost: Cost
    reply: Reply | None = None


class RequestQueue:
    """Asks for texts.

    `over_budget` counts texts that were not asked for, for lack of budget; `cached` the replies that were on the disk.
    """

    def __init__(self, writer: Writer, budget: Budget, settings: TextSettings, progress: Progress) -> None:
        self.writer, self.budget, self.settings, self.progress = writer, budget, settings, progress
        self.over_budget = self.cached = self.answered = self.refused = 0
        self.window = deque[_QueuedRequest]()
        self.reserved_cost = Cost()  # of the window: what its replies cost, and the most of those that are not there
        self.futures: dict[str, Future[Reply]] = {}
        self.waiting: dict[str, list[_QueuedRequest]] = {}  # for each of these

    def replies(self, requests: Iterable[TextRequest]) -> Iterator[tuple[TextRequest, Reply]]:
        """(text asked for, reply), in the order of `requests`.

        Raises InputError if a request fails for good: no other is begun then, and the replies that came are kept.
        """
        rest = map(self._queued_request, requests)
        coming = next(rest, None)
        with ThreadPoolExecutor(self.writer.at_once, "synthesize") as pool:
            try:
                while coming or self.window:
                    while self.window and (reply := self.window[0].reply):
                        oldest = self.window.popleft()
                        self.reserved_cost -= costs.reply_cost(reply)
                        if not self.budget.fits(self.budget.spent + oldest.largest_cost):
                            # Costlier than their most were some before it; what comes after is not used, whenever it was asked.
                            self.over_budget += 1 + len(self.window) + (coming is not None) + sum(1 for _ in rest)
                            return
                        self.add_reply(reply)
                        yield oldest.request, reply
                    if coming and len(self.window) < WINDOW_FACTOR * self.writer.at_once and self.has_room(coming):
                        self.begin_request(coming, pool)
                        coming = next(rest, None)
                    elif self.futures:
                        self.wait_for_reply()
                    elif coming and not self.window:
                        self.over_budget += 1 + sum(1 for _ in rest)
                        return
            finally:
                self.writer.stop_event.set()
                for future in self.futures.values():
                    future.cancel()

    def _queued_request(self, request: TextRequest) -> _QueuedRequest:
        body = request.body(self.settings)
        return _QueuedRequest(request, body, costs.largest_cost(request.prompt, self.settings.max_tokens))

    def has_room(self, coming: _QueuedRequest) -> bool:
        """Whether a request may be begun now: there is a thread for it, and the budget holds whatever the running ones will cost."""
        if len(self.futures) >= self.writer.at_once:
            return False
        return self.budget.fits(self.budget.spent + self.reserved_cost + coming.largest_cost)

    def begin_request(self, queued: _QueuedRequest, pool: ThreadPoolExecutor) -> None:
        """Ask, or take the reply that is on the disk or on its way."""
        name = name_of(queued.body)
        self.window.append(queued)
        self.reserved_cost += queued.largest_cost
        if name in self.futures:
            self.waiting[name].append(queued)
        elif reply := self.writer.cached_reply(queued.body):
            self.set_reply(queued, reply)
            self.cached += 1
            self.progress.first += 1  # it has no part in the rate
        else:
            self.futures[name], self.waiting[name] = pool.submit(self.writer.reply, queued.body), [queued]

    def wait_for_reply(self) -> None:
        """Wait for a reply or more, and put each to its request."""
        wait(self.futures.values(), return_when=FIRST_COMPLETED)
        for name in [name for name, future in self.futures.items() if future.done()]:
            try:
                reply = self.futures.pop(name).result()
            except InputError as error:
                raise InputError(
                    f"{error}; replies that came are kept in {self.writer.cache} and will not be asked for again"
                ) from None
            for queued in self.waiting.pop(name):
                self.set_reply(queued, reply)

    def set_reply(self, queued: _QueuedRequest, reply: Reply) -> None:
        """Put a reply to its request."""
        queued.reply = reply
        self.reserved_cost += costs.reply_cost(reply) - queued.largest_cost

    def add_reply(self, reply: Reply) -> None:
        """Count a reply that is used."""
        self.budget.spent += costs.reply_cost(reply)
        self.refused += bool(reply.refused)
        self.answered += not reply.refused
        if self.refused == FIRST_REFUSALS and not self.answered:
            raise InputError(f"{self.writer.url} refuses every prompt: {reply.refused}")
        self.progress.add(note=self.budget.spent_text())
