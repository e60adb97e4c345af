"""Which settings are tried, one after the other: each by what those before it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

LEAST_GAIN = 1.01  # times as fast, for a larger micro-batch to be worth a further one


@dataclass(frozen=True)
class Setting:
    """Keys of pretrain.train that are tried."""

    micro_batch: int
    activation_checkpointing: bool = False
    selective_checkpointing: bool = False
    compile_layers: bool = False

    @property
    def recomputation(self) -> str:
        """What of the activations is computed again, in a word."""
        if not self.activation_checkpointing:
            return "nothing"
        return "all but products" if self.selective_checkpointing else "all"


@dataclass(frozen=True)
class Trial:
    """What a setting took. tokens_per_second: of a step as the training takes it; None if it did not run, and `note` says why.

    peak_bytes: the most that torch gave to tensors on the GPU; None on a CPU.
    """

    setting: Setting
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_bytes: int | None = None
    note: str = ""

    @property
    def speed(self) -> float:
        """tokens/s; 0 of one that did not run."""
        return self.tokens_per_second or 0.0

    def as_row(self) -> dict[str, Any]:
        """The trial for JSON."""
        return {**vars(self.setting), **{key: value for key, value in vars(self).items() if key != "setting"}}


def search(
    first: Setting, sizes: Sequence[int], compiled: bool, measure: Callable[[Setting], Trial]
) -> Iterator[Trial]:
    """Trials from the config's setting `first` on, each measured once, when it is wanted.

    With each kind of recomputation the micro-batch is doubled, or more, as long as it fits and gains, or halved until it fits. sizes: the
    micro-batches that divide a step, rising. compiled: all but the first have compiled layers.
    """
    known: dict[Setting, Trial] = {}

    def take(setting: Setting) -> Iterator[Trial]:
        """The trial of a setting, if it is a new one."""
        if setting not in known:
            known[setting] = measure(setting)
            yield known[setting]

    def climb(start: Setting) -> Iterator[Trial]:
        """The micro-batches of one kind of recomputation."""
        setting = start
        yield from take(setting)
        while not known[setting].speed and (smaller := [size for size in sizes if 2 * size <= setting.micro_batch]):
            setting = replace(setting, micro_batch=smaller[-1])
            yield from take(setting)
        while known[setting].speed and (larger_sizes := [size for size in sizes if size >= 2 * setting.micro_batch]):
            larger = replace(setting, micro_batch=larger_sizes[0])
            if larger in known:
                return
            yield from take(larger)
            if known[larger].speed < LEAST_GAIN * known[setting].speed:
                return
            setting = larger

    yield from take(first)
    base = replace(first, compile_layers=first.compile_layers or compiled)
    yield from climb(replace(base, activation_checkpointing=False, selective_checkpointing=False))
    for selective in (True, False):
        best = max(known.values(), key=lambda trial: trial.speed).setting
        larger = next((size for size in sizes if size >= 2 * best.micro_batch), sizes[-1])
        start = replace(base, micro_batch=larger, activation_checkpointing=True, selective_checkpointing=selective)
        yield from climb(start)
