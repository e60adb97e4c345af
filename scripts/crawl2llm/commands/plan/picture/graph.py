"""What a picture of a plan shows: a box for each step in the folder of a variant, and which boxes read from which.

A variant reads from `main` what does not differ there, so such a step is one box, with edges into every variant that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from crawl2llm.chain.step import stage_of

UP_TO_DATE, RUNS, MISSING, LEFT_OUT = "up to date", "will run", "missing", "left out"
# What a state says, in the legend. `left out` is rare: a plan of a part (--until), or results deleted to free the disk.
STATES = {RUNS: "will run again", MISSING: "missing, will run", UP_TO_DATE: "up to date", LEFT_OUT: "not in this plan"}

Edge = tuple[str, str]  # (key of a box, key of a box that reads from it)


@dataclass(frozen=True)
class Box:
    """A step in a variant's folder. state: one of STATES; "" in a picture of the workflow alone, which has no plan.

    tasks: how many it has, `tasks_to_run` of which the plan runs. reasons: (words, tasks) as `crawl2llm plan` prints them. changes: every
    key, module and file that differs from what its result was made with, in full; differs: the same from main's, of a variant. about,
    gpu_hours: the estimate in words, empty if nothing runs or no GPU is used.
    """

    variant: str
    step: str
    state: str = ""
    tasks: int = 1
    tasks_to_run: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    changes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    about: str = ""
    gpu_hours: str = ""
    count_note: str = ""  # of a picture without a plan: how its tasks are counted

    @property
    def key(self) -> str:
        """Its name in edges and in the page."""
        return f"{self.variant}/{self.step}"

    @property
    def stage(self) -> str:
        """`language` of language.score."""
        return stage_of(self.step)


@dataclass(frozen=True)
class Graph:
    """Boxes by key, and edges between their keys. steps and variants are in the order in which they are drawn."""

    steps: tuple[str, ...]
    variants: tuple[str, ...]
    boxes: dict[str, Box]
    edges: tuple[Edge, ...]

    def transitive_reduction(self) -> Graph:
        """The same boxes with the fewest edges from which the same boxes are reached."""
        return replace(self, edges=reduce_edges(self.edges))


def keys_above(edges: Iterable[Edge]) -> dict[str, set[str]]:
    """Key → the keys of all boxes that it reads from, through others too. Raises ValueError if the edges go in a circle."""
    needs: dict[str, list[str]] = {}
    for source, target in edges:
        needs.setdefault(target, []).append(source)
    above: dict[str, set[str]] = {}
    visiting: set[str] = set()

    def add_above(key: str) -> set[str]:
        if key not in above:
            if key in visiting:
                raise ValueError(f"{key} reads from itself")
            visiting.add(key)
            above[key] = set(needs.get(key, ())).union(*(add_above(near) for near in needs.get(key, ())))
        return above[key]

    for key in list(needs):
        add_above(key)
    return above


def reduce_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """The transitive reduction: without edges to what is reached through another box too. Of a graph without circles it is one alone."""
    unique_edges = tuple(dict.fromkeys(edges))
    far = keys_above(unique_edges)
    needs: dict[str, list[str]] = {}
    for source, target in unique_edges:
        needs.setdefault(target, []).append(source)
    return tuple(
        (source, target)
        for source, target in unique_edges
        if not any(source in far.get(near, ()) for near in needs[target] if near != source)
    )
