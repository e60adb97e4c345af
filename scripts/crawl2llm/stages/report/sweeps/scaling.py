"""A scaling law: loss by parameters and tokens, in Chinchilla's form, with confidence by bootstrap.

L(N, D) = E + A / N^α + B / D^β. Hoffmann et al. 2022, arXiv:2203.15556, section 3.3 and appendix D.3: Huber's loss of the logarithms, by
L-BFGS from a grid of starts. After Besiroglu et al. 2024, arXiv:2404.10102: losses are added up and not averaged, or the search ends too
early; nothing is rounded; the intervals are those of the bootstrap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize

Floats = npt.NDArray[np.float64]
Logs = tuple[Floats, Floats, Floats]
DELTA = 1e-3  # where Huber's loss of log L becomes linear: Hoffmann et al., appendix D.3
# The grid of starts of Hoffmann et al., appendix D.3, for (a, b, e, α, β), with a = log A, b = log B, e = log E.
GRID = ((0.0, 5.0, 10.0, 15.0, 20.0, 25.0),) * 2 + ((-1.0, -0.5, 0.0, 0.5, 1.0),) + ((0.0, 0.5, 1.0, 1.5, 2.0),) * 2
STARTS = 6  # of the grid's 4,500, those with the lowest loss are searched from
ENDS = 3  # and the searches with the lowest loss are brought to their end
# Of (a, b, e, α, β); a model of a scaling law with a power above 4 is none.
BOUNDS = ((-10.0, 80.0), (-10.0, 80.0), (-20.0, 10.0), (0.0, 4.0), (0.0, 4.0))
DISTINCT = 3  # values that a power needs: a constant, a factor and an exponent
OPERATIONS = 6  # floating-point operations of a parameter and token: Kaplan et al. 2020, arXiv:2001.08361, section 2.1


@dataclass(frozen=True)
class Law:
    """The constants. A and α are None where sizes do not vary enough, B and β where tokens do not: E then holds that part too."""

    E: float
    A: float | None
    alpha: float | None
    B: float | None
    beta: float | None

    def loss(self, parameters: Floats | float, tokens: Floats | float) -> Floats:
        """The loss that it predicts."""
        out = np.full(np.broadcast(parameters, tokens).shape, self.E)
        if self.A is not None and self.alpha is not None:
            out = out + self.A * np.asarray(parameters, float) ** -self.alpha
        if self.B is not None and self.beta is not None:
            out = out + self.B * np.asarray(tokens, float) ** -self.beta
        return out

    def optimum(self, operations: float) -> tuple[float, float] | None:
        """(parameters, tokens) with the lowest loss for so many operations, C = 6 N D; None where one of the two powers is not known.

        N = G (C/6)^(β/(α+β)), D = C / (6 N), G = (α A / (β B))^(1/(α+β)): Hoffmann et al., equation 4.
        """
        if self.A is None or self.B is None or not self.alpha or not self.beta or min(self.alpha, self.beta) <= 0:
            return None
        scale = (math.log(self.alpha * self.A) - math.log(self.beta * self.B)) / (self.alpha + self.beta)
        share = self.beta / (self.alpha + self.beta)
        parameters = math.exp(scale + share * math.log(operations / OPERATIONS))
        return parameters, operations / OPERATIONS / parameters


def _terms(by_size: bool, by_tokens: bool) -> list[int]:
    """The places in (a, b, e, α, β) that are searched for."""
    return [
        *([0] if by_size else []),
        *([1] if by_tokens else []),
        2,
        *([3] if by_size else []),
        *([4] if by_tokens else []),
    ]


def _predicted(free: Floats, places: list[int], logs: Logs) -> tuple[Floats, Floats]:
    """log L at `free`, the constants at `places` of (a, b, e, α, β), [points]; and its derivatives by them, [points, constants].

    logs: of N, D and L. Of several `free`, [starts, constants], each has the first axis.
    """
    whole = _filled(free, places)[..., None]
    n, d, _ = logs
    terms = [whole[..., 0, :] - whole[..., 3, :] * n, whole[..., 1, :] - whole[..., 4, :] * d, whole[..., 2, :] + 0 * n]
    rows = np.stack(
        [term if place in places else np.full_like(term, -np.inf) for place, term in enumerate(terms)], axis=-1
    )
    largest = rows.max(axis=-1, keepdims=True)
    predicted = largest + np.log(np.exp(rows - largest).sum(axis=-1, keepdims=True))
    shares = np.exp(rows - predicted)
    slopes = np.concatenate([shares, -shares[..., :1] * n[:, None], -shares[..., 1:2] * d[:, None]], axis=-1)
    return predicted[..., 0], slopes[..., places]


def _loss(free: Floats, places: list[int], logs: Logs) -> tuple[float, Floats]:
    """The summed Huber loss over DELTA², and its gradient: unscaled it is so small that a search would end at its start."""
    predicted, slopes = _predicted(free, places, logs)
    away = (predicted - logs[2]) / DELTA
    return float(_huber(away)), (np.clip(away, -1, 1)[:, None] * slopes).sum(axis=0) / DELTA


def _huber(away: Floats) -> Floats:
    """Huber's loss with its bend at 1, added up over the points, the last axis."""
    found: Floats = np.where(np.abs(away) <= 1, away**2 / 2, np.abs(away) - 0.5).sum(axis=-1)
    return found


def _filled(free: Floats, places: list[int]) -> Floats:
    whole = np.zeros((*free.shape[:-1], 5))
    whole[..., places] = free
    return whole


def _searched(start: Floats, places: list[int], logs: Logs) -> tuple[float, Floats]:
    """L-BFGS from a start of the grid."""
    found = optimize.minimize(
        _loss,
        start,
        args=(places, logs),
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS[place] for place in places],
        options={"maxiter": 150, "ftol": 1e-12, "gtol": 1e-9},
    )
    return float(found.fun), np.asarray(found.x)


def _ended(start: Floats, places: list[int], logs: Logs) -> Floats:
    """The end of a search, by a trust region with the same loss: in the narrow valley of such a law L-BFGS takes thousands of steps."""
    low, high = np.array([BOUNDS[place] for place in places]).T
    found = optimize.least_squares(
        lambda free: _predicted(free, places, logs)[0] - logs[2],
        np.clip(start, low + 1e-9, high - 1e-9),
        jac=lambda free: _predicted(free, places, logs)[1],
        bounds=(low, high),
        loss="huber",
        f_scale=DELTA,
        x_scale="jac",
        ftol=1e-14,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=300,
    )
    return np.asarray(found.x)


def _law(free: Floats, places: list[int]) -> Law:
    a, b, e, alpha, beta = (float(x) for x in _filled(free, places))
    by_size, by_tokens = 0 in places, 1 in places
    return Law(
        math.exp(e),
        math.exp(a) if by_size else None,
        alpha if by_size else None,
        math.exp(b) if by_tokens else None,
        beta if by_tokens else None,
    )


def _starts(places: list[int], logs: Logs) -> list[Floats]:
    """The best of the grid: to look at a start is cheap, to search from each of 4,500 is not."""
    every = np.array(list(itertools.product(*(GRID[place] for place in places))))
    parts = (every[begin : begin + 500] for begin in range(0, len(every), 500))
    losses = np.concatenate([_huber((_predicted(part, places, logs)[0] - logs[2]) / DELTA) for part in parts])
    return [every[place] for place in np.argsort(losses, kind="stable")[:STARTS]]


def identifiable(parameters: Sequence[float], tokens: Sequence[float]) -> tuple[bool, bool]:
    """Whether these points tell the power of parameters, and that of tokens: DISTINCT values of it, and more points than constants.

    Where both vary, also more places (N, D) than constants: points on one line through the plane, such as D = 20 N, do not tell which
    of the two it was.
    """
    sizes, lengths = len(set(parameters)) >= DISTINCT, len(set(tokens)) >= DISTINCT
    places = len(set(zip(parameters, tokens, strict=True)))
    if sizes and lengths and (places < 6 or places < max(len(set(parameters)), len(set(tokens))) + 2):
        return False, False
    if not (sizes and lengths) and len(set(parameters)) > 1 and len(set(tokens)) > 1:
        return False, False  # what varies but not enough would be taken for the other one
    return sizes, lengths


def fit(parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float]) -> Law | None:
    """The law of these points; None where neither power is identifiable. Losses are positive, of any unit (E, A and B have it)."""
    by_size, by_tokens = identifiable(parameters, tokens)
    if not (by_size or by_tokens):
        return None
    places, logs = _terms(by_size, by_tokens), _logs(parameters, tokens, losses)
    found = sorted((_searched(start, places, logs) for start in _starts(places, logs)), key=lambda one: one[0])
    ends = [_ended(start, places, logs) for _, start in found[:ENDS]]
    return _law(min(ends, key=lambda free: _loss(free, places, logs)[0]), places)


def _logs(*columns: Sequence[float]) -> Logs:
    n, d, losses = (np.log(np.asarray(column, float)) for column in columns)
    return n, d, losses


def bootstrap(
    law: Law, parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float], resamples: int, seed: int
) -> list[Law]:
    """The laws of points drawn with replacement, each searched for from `law`; draws that do not identify its constants are left out."""
    chance, out = np.random.default_rng([seed, 20_22]), []
    by_size, by_tokens = law.A is not None, law.B is not None
    places, (n, d, wanted) = _terms(by_size, by_tokens), _logs(parameters, tokens, losses)
    whole = np.array([_log(law.A), _log(law.B), _log(law.E), law.alpha or 0.0, law.beta or 0.0])
    for _ in range(resamples):
        drawn = chance.integers(len(n), size=len(n))
        if identifiable(list(n[drawn]), list(d[drawn])) == (by_size, by_tokens):
            out.append(_law(_ended(whole[places], places, (n[drawn], d[drawn], wanted[drawn])), places))
    return out


def _log(value: float | None) -> float:
    return math.log(value) if value else 0.0


def interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The percentile interval of bootstrap values."""
    low, high = np.quantile(np.asarray(values, float), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def described(
    parameters: Sequence[float],
    tokens: Sequence[float],
    losses: Sequence[float],
    options: dict[str, Any],
) -> dict[str, Any]:
    """The law as JSON: `constants` by name with `value`, `low`, `high`; `optima`: the best parameters and tokens for some numbers of
    operations; `error`: the mean absolute difference of log L. Or `why` nothing was fitted.
    """
    sizes, lengths = len(set(parameters)), len(set(tokens))
    about = {"points": len(losses), "sizes": sizes, "token_counts": lengths}
    law = fit(parameters, tokens, losses)
    if law is None:
        return {**about, "why": why_not(parameters, tokens)}
    laws = bootstrap(law, parameters, tokens, losses, options["resamples"], options["seed"])
    sure, enough = options["confidence"], len(laws) >= 20
    constants = {}
    for name in ("E", "A", "alpha", "B", "beta"):
        if (value := getattr(law, name)) is not None:
            constants[name] = {"value": value}
            if enough:
                low, high = interval([getattr(one, name) for one in laws], sure)
                constants[name] |= {"low": low, "high": high}
    optima = []
    largest = OPERATIONS * max(n * d for n, d in zip(parameters, tokens, strict=True))
    for operations in (largest, 10 * largest, 100 * largest):
        if (best := law.optimum(operations)) is None:
            continue
        row = {"operations": operations, "parameters": best[0], "tokens": best[1], "loss": float(law.loss(*best))}
        drawn = [found for one in laws if (found := one.optimum(operations))]
        if len(drawn) >= 20:
            row["parameters_low"], row["parameters_high"] = interval([one[0] for one in drawn], sure)
            row["tokens_low"], row["tokens_high"] = interval([one[1] for one in drawn], sure)
        optima.append(row)
    predicted = law.loss(np.asarray(parameters, float), np.asarray(tokens, float))
    error = float(np.mean(np.abs(np.log(predicted) - np.log(np.asarray(losses, float)))))
    return {**about, "constants": constants, "optima": optima, "error": error, "resamples": len(laws)}


def why_not(parameters: Sequence[float], tokens: Sequence[float]) -> str:
    """In words, why no law is identified."""
    sizes, lengths = len(set(parameters)), len(set(tokens))
    places = len(set(zip(parameters, tokens, strict=True)))
    there = f"sizes of model: {sizes}, numbers of tokens: {lengths}"
    if max(sizes, lengths) < DISTINCT:
        return f"{there}; an exponent needs {DISTINCT} of one of them"
    if min(sizes, lengths) < DISTINCT:
        return f"{there}, and both vary: {DISTINCT} of each are needed, or one that stays the same"
    return (
        f"the {places} pairs of size and tokens are too few, or lie on one line: which of the two changed the loss cannot be told. "
        "Train each size on several numbers of tokens"
    )
