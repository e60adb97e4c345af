"""Workflows that the tests of the picture draw, and what must hold of every picture."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, UP_TO_DATE, Box, Graph
from crawl2llm.commands.plan.picture.routes import Picture, Point, Rect

STATES = (RUNS, MISSING, UP_TO_DATE, LEFT_OUT)


def workflow(steps: int, variants: int = 1, seed: int = 0, alone: float = 0.3) -> Graph:
    """A made-up workflow: stages of one to five steps that read from earlier ones. A variant shares a step with main until one that is
    its own, by chance; all below that are its own too. alone: the chance.
    """
    chance = random.Random(seed)  # noqa: S311
    names: list[str] = []
    while len(names) < steps:
        stage = len({name.partition(".")[0] for name in names}) + 1
        names += [f"stage{stage:02d}.step{number}" for number in range(1, chance.randint(1, 5) + 1)]
    names = names[:steps]
    needs = {
        name: sorted({names[max(0, place - 1 - int(chance.expovariate(0.5)))] for _ in range(chance.randint(1, 4))})
        for place, name in enumerate(names)
        if place
    }
    own = {"main": set(names)}
    for number in range(1, variants):
        begun: set[str] = set()
        for place, name in enumerate(names):
            if begun & set(needs.get(name, ())) or (place > steps // 3 * (number % 3) and chance.random() < alone):
                begun.add(name)
        own[f"variant{number}"] = begun
    boxes, edges = {}, []
    for variant, held in own.items():
        for name in names:
            if name not in held:
                continue
            state = chance.choice(STATES) if variant == "main" else MISSING
            tasks = chance.choice((1, 4, 16, 256))
            run = tasks if state in (RUNS, MISSING) else 0
            box = Box(
                variant, name, state, tasks, run,
                reasons=(("threshold 0.4 → 0.77; needs stage01.step1, which runs again", tasks),) if run else (),
                about="1h12m" if run else "", gpu_hours="3.20" if run and tasks == 1 else "",
            )  # fmt: skip
            boxes[box.key] = box
            edges += [(f"{variant if near in held else 'main'}/{near}", box.key) for near in needs.get(name, ())]
    return Graph(tuple(names), tuple(own), boxes, tuple(edges))


def crosses(one: Point, other: Point, rect: Rect) -> bool:
    """Whether a line between two points goes through the inside of a rectangle (Liang and Barsky's clipping)."""
    begin, end = 0.0, 1.0
    for at, far, low, size in ((one[0], other[0], rect.x, rect.width), (one[1], other[1], rect.y, rect.height)):
        step = far - at
        if step == 0:
            if not low < at < low + size:
                return False
            continue
        near, away = sorted(((low - at) / step, (low + size - at) / step))
        begin, end = max(begin, near), min(end, away)
    return begin < end


def through_boxes(picture: Picture) -> list[tuple[str, str, str]]:
    """(from, to, box) of every edge that goes through a box, its own two among them."""
    return [
        (*edge, key)
        for edge, points in picture.edges.items()
        for one, other in pairwise(points)
        for key, rect in picture.boxes.items()
        if crosses(one, other, rect)
    ]


def on_each_other(picture: Picture) -> list[tuple[str, str]]:
    """Pairs of boxes whose edges lie on each other for a part of their way, where nobody can tell them apart."""
    lines: dict[tuple[str, float], list[tuple[float, float, str, str]]] = {}
    for (source, target), points in picture.edges.items():
        for one, other in pairwise(points):
            across = int(one[0] == other[0])
            low, high = sorted((one[across], other[across]))
            lines.setdefault(("yx"[across], one[1 - across]), []).append((low, high, source, target))
    return [
        (one[2], other[2])
        for held in lines.values()
        for one, other in combinations(held, 2)
        if one[2] != other[2] and max(one[0], other[0]) < min(one[1], other[1])
    ]


def overlapping(rects: dict[str, Rect]) -> list[tuple[str, str]]:
    """Pairs of rectangles that share more than an edge."""
    return [
        (one, other)
        for (one, a), (other, b) in combinations(rects.items(), 2)
        if a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height
    ]
