"""What replies may cost in tokens and in money, so that the same ones are paid for at any number of requests at a time.

A text is asked for where what all before it cost and the most that it may cost fit the budget. Of those before it that are not answered yet
their most is taken, and waited for where that does not fit: so it is decided by the replies alone, not by when they come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from crawl2llm.stages.synthesize.endpoint import Reply
from crawl2llm.stages.synthesize.settings import Prices

TEMPLATE_TOKENS = 64  # tokens that a chat template may add to a prompt
MILLION = 1_000_000


@dataclass(frozen=True)
class Cost:
    """Tokens of prompts and of replies."""

    prompt: int = 0
    completion: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.prompt + other.prompt, self.completion + other.completion)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.prompt - other.prompt, self.completion - other.completion)


def reply_cost(reply: Reply) -> Cost:
    """What a reply cost."""
    return Cost(reply.prompt, reply.completion)


def largest_cost(prompt: str, max_tokens: int) -> Cost:
    """The most that a request may cost: no tokenizer makes more tokens of a text than it has bytes."""
    return Cost(len(prompt.encode()) + TEMPLATE_TOKENS, max_tokens)


@dataclass
class Budget:
    """tokens, money: the most that may be spent; None has no bound."""

    tokens: int | None
    money: float | None
    prices: Prices
    spent: Cost = field(default_factory=Cost)

    @property
    def has_prices(self) -> bool:
        """Whether tokens cost any money."""
        return bool(self.prices.prompt or self.prices.completion)

    def price(self, cost: Cost) -> float:
        """What tokens cost, in the unit of the prices."""
        return (cost.prompt * self.prices.prompt + cost.completion * self.prices.completion) / MILLION

    def fits(self, cost: Cost) -> bool:
        """Whether so much can be spent in all."""
        tokens = math.inf if self.tokens is None else self.tokens
        money = math.inf if self.money is None else self.money
        return cost.prompt + cost.completion <= tokens and self.price(cost) <= money

    def spent_text(self) -> str:
        """`12,345 tokens, 0.67 spent`, for a line of progress."""
        money = f", {self.price(self.spent):,.2f} of money" if self.has_prices else ""
        return f"{self.spent.prompt + self.spent.completion:,} tokens{money} so far"
