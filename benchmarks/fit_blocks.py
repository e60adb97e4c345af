"""Fit the forests of `extractor: fast` on pages with gold text, and write scripts/crawl2llm/stages/ingest/blocks.json.

    python -m benchmarks.fit_blocks --articles … --types … --crawl … --news … --out scripts/crawl2llm/stages/ingest/blocks.json
    python -m benchmarks.fit_blocks --articles … --types … --crawl … --news … --out /tmp/blocks.json --leave 0

Pages that are held (see benchmarks/gold_pages.py) and others of their hosts take no part. With `--leave` a third of the other hosts takes
none either, and the quality on its pages is printed: what a person chooses here (measures, weights, sizes) is chosen by that.

A block's label is whether half of its 4-grams are in the gold text; one of fewer than 4 words is told by the blocks before and behind it.
The second forest is fitted on scores that come from first forests which did not see the page (two folds by host).

A forest is the mean of several members. Each is fitted on the pages of some 85% of the hosts, drawn by chance, and looks at three
in ten measures, drawn by chance, for each node: a page that one member gets wrong as a whole is got right by others (Breiman, Bagging
predictors, 1996).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.extraction import extractor, quality
from benchmarks.gold_pages import GoldPage, news, options, pages
from crawl2llm.stages.ingest import blocks, compiled, measures
from crawl2llm.stages.ingest.forest import Forest
from crawl2llm.stages.ingest.markup import parse_page, read_markup
from crawl2llm.stages.ingest.warc import tidy

WORD = re.compile(r"\w+")
SCALE = 100  # scores are whole hundredths of the log of the odds
# How much a page counts: what other people measure on, and what a corpus is made of, most.
WEIGHTS = {"articles": 8.0, "crawl": 1.4, "news": 1.0, "types": 1.5}
KINDS = {"forum": 0.7, "service": 0.9, "product": 0.4, "collection": 0.4, "listing": 0.4}
BLOCKS = 120  # of a page, at most, chosen by chance
ROUGH = (30, 50)  # trees of the forests that only choose measures
HOSTS = 0.85  # of the hosts, that a member of a forest is fitted on
MEASURES = 0.3  # of the measures, that a node may choose from
LEAST = 0.6  # of the gold text's words that the page must have


def third(host: str) -> int:
    """The third of the hosts that a host is in."""
    return sha256(b"third " + host.encode()).digest()[0] % 3


def labels(texts: Sequence[str], gold: str) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """(whether each block is main text, its number of words)."""
    words = WORD.findall(gold.lower())
    grams = set(zip(words, words[1:], words[2:], words[3:], strict=False))
    lines = {tuple(WORD.findall(line.lower())) for line in gold.split("\n")}
    blocks = [WORD.findall(text.lower()) for text in texts]
    out = np.zeros(len(texts), np.int8)
    for number, block in enumerate(blocks):
        if len(block) >= 4:
            found = [gram in grams for gram in zip(block, block[1:], block[2:], block[3:], strict=False)]
            out[number] = sum(found) * 2 >= len(found)
        elif block and len(lines) > 3:
            out[number] = tuple(block) in lines
    for step in (1, -1):  # short ones: the 4-gram across the border to the nearest block of main text
        edge: list[str] = []
        away = 0
        for number in range(len(blocks))[::step]:
            block = blocks[number]
            joined = edge + block if step == 1 else block + edge
            if not out[number] and 0 < len(block) < 4 and edge and away < 8:
                gram = tuple(joined[-4:] if step == 1 else joined[:4])
                out[number] = gram in grams
            if out[number]:
                edge, away = (joined[-4:] if step == 1 else joined[:4]), 0
            else:
                away += 1
    return out, np.array([len(block) for block in blocks], np.float64)


def fitted(
    rows: NDArray[np.int16], label: NDArray[np.int8], weight: NDArray[np.float64], trees: int, depth: int, seed: int = 0
) -> HistGradientBoostingClassifier:
    """A forest of scikit-learn."""
    model = HistGradientBoostingClassifier(
        max_iter=trees, max_depth=depth, max_leaf_nodes=2**depth, learning_rate=0.2, min_samples_leaf=60, l2_regularization=3,
        max_features=MEASURES, max_bins=64, early_stopping=False, random_state=seed,
    )  # fmt: skip
    return model.fit(rows, label, sample_weight=weight * len(weight) / weight.sum())


def stored(model: HistGradientBoostingClassifier, names: list[str], depth: int) -> dict[str, Any]:
    """The forest as complete trees in whole numbers (stages/ingest/forest.py)."""
    used: dict[str, int] = {}
    trees = []
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        measures, limits, leaves = [0] * (2**depth - 1), [0] * (2**depth - 1), [0] * 2**depth

        def fill(place: int, level: int, node: Any) -> None:
            if level == depth:
                leaves[place - (2**depth - 1)] = round(float(node["value"]) * SCALE)  # noqa: B023
                return
            if not node["is_leaf"]:
                measures[place] = used.setdefault(names[node["feature_idx"]], len(used))  # noqa: B023
                limits[place] = int(np.floor(node["num_threshold"]))  # noqa: B023
            below = (node, node) if node["is_leaf"] else (nodes[node["left"]], nodes[node["right"]])  # noqa: B023
            fill(2 * place + 1, level + 1, below[0])
            fill(2 * place + 2, level + 1, below[1])

        fill(0, 0, nodes[0])
        trees.append({"measures": measures, "limits": limits, "leaves": leaves})
    return {"names": list(used), "base": round(float(model._baseline_prediction.ravel()[0]) * SCALE), "trees": trees}


def mean_of(members: list[dict[str, Any]]) -> dict[str, Any]:
    """One forest that scores as the mean of the members does."""
    used: dict[str, int] = {}
    trees = []
    for member in members:
        numbers = [used.setdefault(name, len(used)) for name in member["names"]]
        trees += [
            {
                "measures": [numbers[measure] if numbers else 0 for measure in tree["measures"]],
                "limits": tree["limits"],
                "leaves": [round(leaf / len(members)) for leaf in tree["leaves"]],
            }
            for tree in member["trees"]
        ]
    return {"names": list(used), "base": round(sum(each["base"] for each in members) / len(members)), "trees": trees}


def chosen(model: HistGradientBoostingClassifier, names: list[str], most: int) -> list[str]:
    """The measures that gain most, so many at most, in the order of names."""
    gain = np.zeros(len(names))
    for (predictor,) in model._predictors:
        inner = predictor.nodes[predictor.nodes["is_leaf"] == 0]
        np.add.at(gain, inner["feature_idx"], inner["gain"])
    best = set(np.argsort(-gain, kind="stable")[:most])
    return [name for number, name in enumerate(names) if number in best and gain[number] > 0]


class Set:
    """Pages with the measures of their blocks; of each page the blocks that are fitted on, with label and weight."""

    def __init__(self, gold: list[GoldPage], seed: int) -> None:
        random = np.random.default_rng(seed)
        self.first_names, self.second_names = measures.measure_names()
        self.row = {name: row for row, name in enumerate(self.first_names)}
        self.pages: list[compiled.Page] = []
        self.measures: list[NDArray[np.int16]] = []  # of all blocks of a page
        self.picked: list[NDArray[np.int64]] = []
        self.fold: list[int] = []  # of a page, by its host
        hosts: list[str] = []
        label, weight = [], []
        for each in gold:
            markup = read_markup(parse_page(each.page))
            total = len(WORD.findall(each.gold))
            if not markup.text or total < 20:
                continue
            right, words = labels(markup.text, each.gold)
            if words[right == 1].sum() < LEAST * total:
                continue
            page = measures.compiled_page(markup)
            count = page.count
            rows = np.empty((len(self.row), count), np.int16)
            page.first(self.row, rows)
            picked = np.arange(count) if count <= BLOCKS else np.sort(random.choice(count, BLOCKS, replace=False))
            share = np.maximum(words[picked], 0.5) ** 0.75
            self.pages.append(page)
            self.measures.append(rows)
            self.picked.append(picked)
            self.fold.append(sum(each.host.encode()) % 2)
            hosts.append(each.host)
            label.append(right[picked])
            weight.append(share / share.sum() * WEIGHTS[each.source] * KINDS.get(each.kind, 1.0))
        self.label, self.weight = np.concatenate(label), np.concatenate(weight)
        picked_of = [len(picked) for picked in self.picked]
        self.fold_of_block = np.repeat(self.fold, picked_of)
        names, numbers = np.unique(hosts, return_inverse=True)
        self.hosts, self.host_of_block = len(names), np.repeat(numbers, picked_of)

    def first(self) -> tuple[NDArray[np.int16], list[str]]:
        """[picked blocks of all pages, measures] before any score, and the measures' names."""
        rows = [rows[:, picked].T for rows, picked in zip(self.measures, self.picked, strict=True)]
        return np.concatenate(rows), self.first_names

    def second(self, forests: Sequence[Forest]) -> tuple[NDArray[np.int16], list[str]]:
        """The same with the measures that the scores add: those of a page by the forest of its fold."""
        out = []
        row_of = {name: row for row, name in enumerate(self.second_names)}
        for page, first, picked, fold in zip(self.pages, self.measures, self.picked, self.fold, strict=True):
            second = np.empty((len(row_of), page.count), np.int16)
            page.second(forests[fold].scores(first), row_of, second)
            out.append(np.concatenate([first[:, picked], second[:, picked]]).T)
        return np.concatenate(out), self.first_names + self.second_names


def forests(
    data: Set, members: Sequence[int], trees: Sequence[int], measures: Sequence[int], depth: int
) -> dict[str, Any]:
    """Both forests, as blocks.json has them; how many members, trees of a member and measures each has."""

    def fit(rows: NDArray[np.int16], names: list[str], which: int) -> Callable[..., dict[str, Any]]:
        some = slice(None, None, 3)  # enough to see which measures gain
        rough = fitted(rows[some], data.label[some], data.weight[some], ROUGH[which], depth)
        best = chosen(rough, names, measures[which])
        print(f"forest {which + 1}: {len(best)} measures", flush=True)
        columns = rows[:, [names.index(name) for name in best]]

        def on(part: NDArray[np.bool_]) -> dict[str, Any]:
            made = []
            for seed in range(members[which]):
                drawn = np.random.default_rng(seed).random(data.hosts) < HOSTS
                mine = part & drawn[data.host_of_block]
                model = fitted(columns[mine], data.label[mine], data.weight[mine], trees[which], depth, seed)
                made.append(stored(model, best, depth))
            return mean_of(made)

        return on

    on = fit(*data.first(), 0)
    every = np.ones(len(data.label), np.bool_)
    first = on(every)
    others = [Forest.from_json(on(data.fold_of_block != fold), data.first_names) for fold in (0, 1)]
    return {"first": first, "second": fit(*data.second(others), 1)(every)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--news", type=Path, help="a clone of article-extraction-dataset")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--members", type=int, nargs=2, default=[4, 6], help="members of the first and of the second forest"
    )
    parser.add_argument("--trees", type=int, nargs=2, default=[40, 80], help="trees of a member")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument(
        "--measures", type=int, nargs=2, default=[90, 110], help="most measures that each forest may use"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--leave", type=int, choices=(0, 1, 2), help="the third of the hosts to judge on, not to fit on"
    )
    args = parser.parse_args(argv)
    every = pages(args) + (list(news(args.news)) if args.news else [])
    held = {page.host for page in every if page.held}
    free = [page for page in every if page.host not in held]
    left = [page for page in free if third(page.host) == args.leave]
    data = Set([page for page in free if third(page.host) != args.leave], args.seed)
    print(f"{len(data.pages)} pages, {len(data.label)} blocks, {data.label.mean():.3f} main text", flush=True)
    made = forests(data, args.members, args.trees, args.measures, args.depth)
    args.out.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")
    blocks.FOREST_FILE = args.out
    run = extractor("fast")
    for source in dict.fromkeys(page.source for page in left):
        print(source, json.dumps(quality([(page, tidy(run(page.page))) for page in left if page.source == source])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
