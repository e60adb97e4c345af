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
    """The constants. A and α are None if sizes do not vary enough, B and β where tokens do not: E then holds that part too."""

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
        """(parameters, tokens) with the lowest loss for so many operations, C = 6 N D; None if one of the two powers is not known.

        N = G (C/6)^(β/(α+β)), D = C / (6 N), G = (α A / (β B))^(1/(α+β)): Hoffmann et al., equation 4.
        """
        if self.A is None or self.B is None or not self.alpha or not self.beta or min(self.alpha, self.beta) <= 0:
            return None
        scale = (math.log(self.alpha * self.A) - math.log(self.beta * self.B)) / (self.alpha + self.beta)
        share = self.beta / (self.alpha + self.beta)
        parameters = math.exp(scale + share * math.log(operations / OPERATIONS))
        return parameters, operations / OPERATIONS / parameters


def _free_places(by_size: bool, by_tokens: bool) -> list[int]:
    """The places in (a, b, e, α, β) that are searched for."""
    return [
        *([0] if by_size else []),
        *([1] if by_tokens else []),
        2,
        *([3] if by_size else []),
        *([4] if by_tokens else []),
    ]


def _predict_log_loss(free: Floats, places: list[int], logs: Logs) -> tuple[Floats, Floats]:
    """log L at `free`, the constants at `places` of (a, b, e, α, β), [points]; and its derivatives by them, [points, constants].

    logs: of N, D and L. Of several `free`, [starts, constants], each has the first axis.
    """
    constants = _all_constants(free, places)[..., None]
    n, d, _ = logs
    terms = [
        constants[..., 0, :] - constants[..., 3, :] * n,
        constants[..., 1, :] - constants[..., 4, :] * d,
        constants[..., 2, :] + 0 * n,
    ]
    rows = np.stack(
        [term if place in places else np.full_like(term, -np.inf) for place, term in enumerate(terms)], axis=-1
    )
    largest = rows.max(axis=-1, keepdims=True)
    predicted = largest + np.log(np.exp(rows - largest).sum(axis=-1, keepdims=True))
    shares = np.exp(rows - predicted)
    slopes = np.concatenate([shares, -shares[..., :1] * n[:, None], -shares[..., 1:2] * d[:, None]], axis=-1)
    return predicted[..., 0], slopes[..., places]


def _scaled_huber(free: Floats, places: list[int], logs: Logs) -> tuple[float, Floats]:
    """The summed Huber loss over DELTA², and its gradient: unscaled it is so small that a search would end at its start."""
    predicted, slopes = _predict_log_loss(free, places, logs)
    residuals = (predicted - logs[2]) / DELTA
    return float(_huber_sum(residuals)), (np.clip(residuals, -1, 1)[:, None] * slopes).sum(axis=0) / DELTA


def _huber_sum(residuals: Floats) -> Floats:
    """Huber's loss with its bend at 1, added up over the points, the last axis."""
    losses: Floats = np.where(np.abs(residuals) <= 1, residuals**2 / 2, np.abs(residuals) - 0.5).sum(axis=-1)
    return losses


def _all_constants(free: Floats, places: list[int]) -> Floats:
    constants = np.zeros((*free.shape[:-1], 5))
    constants[..., places] = free
    return constants


def _search_from(start: Floats, places: list[int], logs: Logs) -> tuple[float, Floats]:
    """L-BFGS from a start of the grid."""
    result = optimize.minimize(
        _scaled_huber,
        start,
        args=(places, logs),
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS[place] for place in places],
        options={"maxiter": 150, "ftol": 1e-12, "gtol": 1e-9},
    )
    return float(result.fun), np.asarray(result.x)


def _finish_search(start: Floats, places: list[int], logs: Logs) -> Floats:
    """The end of a search, by a trust region with the same loss: in the narrow valley of such a law L-BFGS takes thousands of steps."""
    low, high = np.array([BOUNDS[place] for place in places]).T
    result = optimize.least_squares(
        lambda free: _predict_log_loss(free, places, logs)[0] - logs[2],
        np.clip(start, low + 1e-9, high - 1e-9),
        jac=lambda free: _predict_log_loss(free, places, logs)[1],
        bounds=(low, high),
        loss="huber",
        f_scale=DELTA,
        x_scale="jac",
        ftol=1e-14,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=300,
    )
    return np.asarray(result.x)


def _make_law(free: Floats, places: list[int]) -> Law:
    a, b, e, alpha, beta = (float(x) for x in _all_constants(free, places))
    by_size, by_tokens = 0 in places, 1 in places
    return Law(
        math.exp(e),
        math.exp(a) if by_size else None,
        alpha if by_size else None,
        math.exp(b) if by_tokens else None,
        beta if by_tokens else None,
    )


def _best_starts(places: list[int], logs: Logs) -> list[Floats]:
    """The best of the grid: to look at a start is cheap, to search from each of 4,500 is not."""
    grid = np.array(list(itertools.product(*(GRID[place] for place in places))))
    parts = (grid[begin : begin + 500] for begin in range(0, len(grid), 500))
    losses = np.concatenate(
        [_huber_sum((_predict_log_loss(part, places, logs)[0] - logs[2]) / DELTA) for part in parts]
    )
    return [grid[place] for place in np.argsort(losses, kind="stable")[:STARTS]]


def identifiable_powers(parameters: Sequence[float], tokens: Sequence[float]) -> tuple[bool, bool]:
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


def fit_law(parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float]) -> Law | None:
    """The law of these points; None if neither power is identifiable. Losses are positive, of any unit (E, A and B have it)."""
    by_size, by_tokens = identifiable_powers(parameters, tokens)
    if not (by_size or by_tokens):
        return None
    places, logs = _free_places(by_size, by_tokens), _log_columns(parameters, tokens, losses)
    searches = sorted(
        (_search_from(start, places, logs) for start in _best_starts(places, logs)), key=lambda search: search[0]
    )
    ends = [_finish_search(start, places, logs) for _, start in searches[:ENDS]]
    return _make_law(min(ends, key=lambda free: _scaled_huber(free, places, logs)[0]), places)


def _log_columns(*columns: Sequence[float]) -> Logs:
    n, d, losses = (np.log(np.asarray(column, float)) for column in columns)
    return n, d, losses


def bootstrap_laws(
    law: Law, parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float], resamples: int, seed: int
) -> list[Law]:
    """The laws of points drawn with replacement, each searched for from `law`; draws that do not identify its constants are left out."""
    chance, out = np.random.default_rng([seed, 20_22]), []
    by_size, by_tokens = law.A is not None, law.B is not None
    places, (n, d, log_losses) = _free_places(by_size, by_tokens), _log_columns(parameters, tokens, losses)
    constants = np.array(
        [_log_or_zero(law.A), _log_or_zero(law.B), _log_or_zero(law.E), law.alpha or 0.0, law.beta or 0.0]
    )
    for _ in range(resamples):
        rows = chance.integers(len(n), size=len(n))
        if identifiable_powers(list(n[rows]), list(d[rows])) == (by_size, by_tokens):
            out.append(
                _make_law(_finish_search(constants[places], places, (n[rows], d[rows], log_losses[rows])), places)
            )
    return out


def _log_or_zero(value: float | None) -> float:
    return math.log(value) if value else 0.0


def percentile_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The percentile interval of bootstrap values."""
    low, high = np.quantile(np.asarray(values, float), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def law_row(
    parameters: Sequence[float],
    tokens: Sequence[float],
    losses: Sequence[float],
    resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """The law as JSON: `constants` by name with `value`, `low`, `high`; `optima`: the best parameters and tokens for some numbers of
    operations; `error`: the mean absolute difference of log L. Or `why` nothing was fitted.
    """
    sizes, lengths = len(set(parameters)), len(set(tokens))
    about = {"points": len(losses), "sizes": sizes, "token_counts": lengths}
    law = fit_law(parameters, tokens, losses)
    if law is None:
        return {**about, "why": why_no_law(parameters, tokens)}
    laws = bootstrap_laws(law, parameters, tokens, losses, resamples, seed)
    enough = len(laws) >= 20
    constants = {}
    for name in ("E", "A", "alpha", "B", "beta"):
        if (value := getattr(law, name)) is not None:
            constants[name] = {"value": value}
            if enough:
                low, high = percentile_interval([getattr(resampled_law, name) for resampled_law in laws], confidence)
                constants[name] |= {"low": low, "high": high}
    optima = []
    largest = OPERATIONS * max(n * d for n, d in zip(parameters, tokens, strict=True))
    for operations in (largest, 10 * largest, 100 * largest):
        if (best := law.optimum(operations)) is None:
            continue
        row = {"operations": operations, "parameters": best[0], "tokens": best[1], "loss": float(law.loss(*best))}
        optimums = [optimum for law in laws if (optimum := law.optimum(operations))]
        if len(optimums) >= 20:
            row["parameters_low"], row["parameters_high"] = percentile_interval(
                [optimum[0] for optimum in optimums], confidence
            )
            row["tokens_low"], row["tokens_high"] = percentile_interval(
                [optimum[1] for optimum in optimums], confidence
            )
        optima.append(row)
    predicted = law.loss(np.asarray(parameters, float), np.asarray(tokens, float))
    error = float(np.mean(np.abs(np.log(predicted) - np.log(np.asarray(losses, float)))))
    return {**about, "constants": constants, "optima": optima, "error": error, "resamples": len(laws)}


def why_no_law(parameters: Sequence[float], tokens: Sequence[float]) -> str:
    """In words, why no law is identified."""
    sizes, lengths = len(set(parameters)), len(set(tokens))
    places = len(set(zip(parameters, tokens, strict=True)))
    counts_text = f"sizes of model: {sizes}, numbers of tokens: {lengths}"
    if max(sizes, lengths) < DISTINCT:
        return f"{counts_text}; an exponent needs {DISTINCT} of one of them"
    if min(sizes, lengths) < DISTINCT:
        return f"{counts_text}, and both vary: {DISTINCT} of each are needed, or one that stays the same"
    return (
        f"the {places} pairs of size and tokens are too few, or lie on one line, so the effects of size and tokens "
        "cannot be separated. Train each size on several numbers of tokens"
    )
