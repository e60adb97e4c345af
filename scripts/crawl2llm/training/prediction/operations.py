"""The operations of a training step, and how long a GPU takes for them: a roofline. What records them is count.py.

An operation takes the time of its arithmetic or that of the bytes that it moves, whichever is longer (Williams, Waterman and Patterson
2009, https://doi.org/10.1145/1498765.1498785). Compiled layers move fewer bytes: what lies between two matrix products is one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crawl2llm.training.prediction.rates import HOST_COMPILED_SECONDS, HOST_SECONDS, KERNEL, Rates

PRODUCTS, ATTENTION, ELEMENTWISE, LOSS, OPTIMIZER = "matrix products", "attention", "elementwise", "loss", "optimizer"
COMMUNICATION, HOST = "communication", "starting kernels"


@dataclass(frozen=True)
class Operation:
    """One call of a kernel. part: of the step, PRODUCTS to OPTIMIZER; reads, writes: bytes by storage.

    flops: 0 of what only moves bytes. layer: number of the pass through a layer that it is in, 0 outside; backward: in the backward pass.
    """

    part: str
    flops: float
    reads: dict[int, int]
    writes: dict[int, int]
    layer: int = 0
    backward: bool = False
    single: bool = False  # products of fp32 numbers
    strided: int = 0  # bytes of a number where its tensors are not all of one shape and order; else 0
    head: int = 0  # width of a head of attention
    name: str = ""

    def with_aliases(self, alias: Mapping[int, int]) -> Operation:
        """With other storages in the place of some that it reads."""
        if alias.keys().isdisjoint(self.reads):
            return self
        return replace(self, reads={alias.get(storage, storage): size for storage, size in self.reads.items()})

    @property
    def bytes(self) -> int:
        """Bytes that it moves."""
        return sum(self.reads.values()) + sum(self.writes.values())

    @property
    def is_fusible(self) -> bool:
        """Whether a compiler makes it one kernel with its neighbours."""
        return bool(self.layer) and not self.flops


def step_seconds(operations: Sequence[Operation], rates: Rates, compiled: bool) -> dict[str, float]:
    """Seconds of a step by part; HOST: of the processor that starts the kernels, while the GPU works. compiled: layers are."""
    seconds: dict[str, float] = defaultdict(float)
    for operation in operations:
        if compiled and operation.is_fusible:
            continue
        if not operation.flops:
            time = operation.bytes / rates.elementwise_rate(operation.strided)
        elif operation.head:
            time = operation.flops / rates.attention_rate(operation.head, operation.backward)
        else:
            time = max(
                operation.flops / (rates.single if operation.single else rates.products), operation.bytes / rates.copy
            )
        seconds[operation.part] += max(time, KERNEL)
        seconds[HOST] += HOST_COMPILED_SECONDS if compiled and operation.layer else HOST_SECONDS
    for size in fused_bytes(operations) if compiled else ():
        seconds[ELEMENTWISE] += max(size / rates.fused, KERNEL)
        seconds[HOST] += HOST_COMPILED_SECONDS
    return dict(seconds)


def fused_bytes(operations: Sequence[Operation]) -> list[int]:
    """Bytes that each kernel of the compiled layers moves, about as inductor fuses them.

    What lies between the same products and attention is one kernel: it reads what other kernels made, and writes what they read of it.
    What the backward pass alone reads again is not written but computed again from what the forward pass's kernel read
    (torch/_functorch/partitioners.py, min_cut_rematerialization_partition).
    """
    kernels: dict[tuple[int, bool, int], list[Operation]] = {}
    maker: dict[int, tuple[tuple[int, bool, int], Operation]] = {}  # by storage, of what a kernel made
    kept, level, alias, casts = set[int](), dict[tuple[int, bool, int], int](), dict[int, int](), dict[Any, int]()
    for raw in operations:
        operation = raw.with_aliases(alias)
        place = (operation.layer, operation.backward)
        above = max((level.get((*place, storage), 0) for storage in operation.reads), default=0)
        if not operation.is_fusible:
            kept |= operation.reads.keys()
            for storage in operation.writes:
                maker.pop(storage, None)
                level[*place, storage] = above + 1
            continue
        if operation.name == "_to_copy":  # of one tensor several times, to the same type
            same = (*place, *operation.reads.items(), *operation.writes.values())
            (written,) = operation.writes
            if casts.setdefault(same, written) != written:
                alias[written] = casts[same]
                continue
        kernel = (*place, above)
        for storage in operation.reads:
            if storage in maker and maker[storage][0] != kernel and maker[storage][0][1] == operation.backward:
                kept.add(storage)
        kernels.setdefault(kernel, []).append(operation)
        for storage in operation.writes:
            maker[storage], level[*place, storage] = (kernel, operation), above
    return [
        _moved_bytes(each, {storage: made for storage, (_, made) in maker.items()}, kept) for each in kernels.values()
    ]


def _moved_bytes(kernel: Sequence[Operation], maker: Mapping[int, Operation], kept: Container[int]) -> int:
    """Bytes of one kernel: its sources, and what of its results has to be written."""
    made: set[int] = set()
    sizes: dict[int, int] = {}
    written: dict[int, int] = {}
    for operation in kernel:
        for storage, size in _sources(operation, maker, kept, made):
            sizes[storage] = max(sizes.get(storage, 0), size)
        made |= operation.writes.keys()
        for storage, size in operation.writes.items():
            if storage in kept or (operation.backward and storage not in maker):
                written[storage] = max(written.get(storage, 0), size)
    return sum(sizes.values()) + sum(written.values())


def _sources(
    operation: Operation, maker: Mapping[int, Operation], kept: Container[int], made: Container[int]
) -> Iterator[tuple[int, int]]:
    """(storage, bytes) of what is really read: of a storage that nobody writes, what its maker read."""
    seen, queue = set[int](), [operation]
    while queue:
        for storage, size in queue.pop().reads.items():
            if storage in seen or storage in made:
                continue
            seen.add(storage)
            if storage in kept or storage not in maker:
                yield storage, size
            else:
                queue.append(maker[storage])
