"""Fit the forests of `extractor: fast` on pages with gold text, and write scripts/ingest/blocks.json.

    python -m benchmarks.fit_blocks --articles … --types … --crawl … --out scripts/ingest/blocks.json

Pages that are held (see benchmarks/gold_pages.py) and others of their hosts take no part. A block's label is whether half of its 4-grams
are in the gold text; one of fewer than 4 words is told by the blocks before and behind it. The second forest is fitted on scores that
come from first forests which did not see the page (two folds by host).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.gold_pages import GoldPage, options, pages
from scripts.ingest.markup import read, tokens
from scripts.ingest.measures import Page, table

WORD = re.compile(r"\w+")
SCALE = 100  # scores are whole hundredths of the log of the odds
# How much a page counts: what other people measure on, and what a corpus is made of, most.
WEIGHTS = {"articles": 8.0, "crawl": 1.0, "types": 1.0}
KINDS = {"forum": 0.7, "service": 0.6, "product": 0.4, "collection": 0.3, "listing": 0.3}
BLOCKS = 120  # of a page, at most, chosen by chance
LEAST = 0.6  # of the gold text's words that the page must have


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
    rows: NDArray[np.int16], label: NDArray[np.int8], weight: NDArray[np.float64], trees: int, depth: int
) -> HistGradientBoostingClassifier:
    """A forest of scikit-learn."""
    model = HistGradientBoostingClassifier(
        max_iter=trees, max_depth=depth, max_leaf_nodes=2**depth, learning_rate=0.2, min_samples_leaf=60, l2_regularization=3, max_bins=64,
        early_stopping=False, random_state=0,
    )  # fmt: skip
    return model.fit(rows, label, sample_weight=weight * len(weight) / weight.sum())


def stored(model: HistGradientBoostingClassifier, names: list[str], depth: int) -> dict[str, Any]:
    """The forest as complete trees in whole numbers (scripts/ingest/forest.py)."""
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


def chosen(model: HistGradientBoostingClassifier, names: list[str], most: int) -> list[str]:
    """The measures that gain most, so many at most, in the order of names."""
    gain = np.zeros(len(names))
    for (predictor,) in model._predictors:
        inner = predictor.nodes[predictor.nodes["is_leaf"] == 0]
        np.add.at(gain, inner["feature_idx"], inner["gain"])
    best = set(np.argsort(-gain, kind="stable")[:most])
    return [name for number, name in enumerate(names) if number in best and gain[number] > 0]


class Set:
    """Blocks of all pages, one below the other."""

    def __init__(self, gold: list[GoldPage], seed: int) -> None:
        random = np.random.default_rng(seed)
        self.pages: list[Page] = []
        self.picked: list[NDArray[np.int64]] = []
        rows, label, weight, fold = [], [], [], []
        self.names: list[str] = []
        for each in gold:
            markup = read(tokens(each.page))
            total = len(WORD.findall(each.gold))
            if not markup.text or total < 20:
                continue
            right, words = labels(markup.text, each.gold)
            if words[right == 1].sum() < LEAST * total:
                continue
            page = Page(markup)
            measures = page.first()
            self.names = list(measures)
            count = page.count
            picked = np.arange(count) if count <= BLOCKS else np.sort(random.choice(count, BLOCKS, replace=False))
            share = np.maximum(words[picked], 0.5) ** 0.75
            self.pages.append(page)
            self.picked.append(picked)
            rows.append(table(measures, self.names)[:, picked].T)
            label.append(right[picked])
            weight.append(share / share.sum() * WEIGHTS[each.source] * KINDS.get(each.kind, 1.0))
            fold.append(np.full(len(picked), sum(each.host.encode()) % 2))
        self.rows, self.label = np.concatenate(rows), np.concatenate(label)
        self.weight, self.fold = np.concatenate(weight), np.concatenate(fold)

    def second(
        self, models: dict[int, HistGradientBoostingClassifier], names: list[str], folds: Sequence[int]
    ) -> tuple[NDArray[np.int16], list[str]]:
        """The measures of the second forest for every picked block, from scores by the model that did not see the page."""
        rows = []
        for page, picked, fold in zip(self.pages, self.picked, folds, strict=True):
            measures = page.first()
            scores = models[fold].decision_function(table(measures, names).T)
            measures |= page.second(np.rint(scores * SCALE).astype(np.int64))
            rows.append(table(measures, list(measures))[:, picked].T)
        return np.concatenate(rows), list(measures)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--trees", type=int, nargs=2, default=[50, 80], help="trees of the first and of the second forest"
    )
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument(
        "--measures", type=int, nargs=2, default=[60, 70], help="most measures that each forest may use"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    every = pages(args)
    held = {page.host for page in every if page.held}
    data = Set([page for page in every if not page.held and page.host not in held], args.seed)
    print(f"{len(data.pages)} pages, {len(data.label)} blocks, {data.label.mean():.3f} main text", flush=True)

    def columns(names: list[str]) -> NDArray[np.int16]:
        return data.rows[:, [data.names.index(name) for name in names]]

    some = slice(None, None, 3)  # enough to see which measures gain
    rough = fitted(data.rows[some], data.label[some], data.weight[some], args.trees[0] // 2, args.depth)
    names = chosen(rough, data.names, args.measures[0])
    print(f"first forest: {len(names)} measures", flush=True)
    rows = columns(names)
    first = fitted(rows, data.label, data.weight, args.trees[0], args.depth)
    models = {}
    for fold in (0, 1):
        other = data.fold != fold
        models[fold] = fitted(rows[other], data.label[other], data.weight[other], args.trees[0], args.depth)
    at = np.cumsum([0, *map(len, data.picked)])[:-1]
    wide, wide_names = data.second(models, names, [int(data.fold[place]) for place in at])
    rough = fitted(wide[some], data.label[some], data.weight[some], args.trees[1] // 2, args.depth)
    narrow = chosen(rough, wide_names, args.measures[1])
    print(f"second forest: {len(narrow)} measures", flush=True)
    second = fitted(
        wide[:, [wide_names.index(name) for name in narrow]], data.label, data.weight, args.trees[1], args.depth
    )
    both = {"first": stored(first, names, args.depth), "second": stored(second, narrow, args.depth)}
    args.out.write_text(json.dumps(both, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
