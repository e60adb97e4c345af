"""CPU time of every function and regular expression that reads a text, a line or a URL, for strings of 1, 2 and 4 times a length.

    python -m benchmarks.growth > growth.tsv               # some minutes
    python -m benchmarks.growth --length 20000 pii url     # those whose names have one of these words

A row for each: the string (tests/unit/growth.py) on which the longest takes most time, milliseconds for the three lengths, and how
many times as long the longest takes as the shortest; linear work takes 4.
"""

from __future__ import annotations

import argparse

from tests.unit import growth
from tests.unit.test_growth import _table, _uses, expressions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4 * growth.LENGTH, help="characters of the shortest string")
    parser.add_argument("words", nargs="*", default=[""], help="parts of names")
    args = parser.parse_args()
    calls = [*_table().items(), *((one.name, use) for one in expressions()[0] for use in _uses(one))]
    print("name\tstring\tms, 1 x\tms, 2 x\tms, 4 x\ttimes")
    with growth.limited():
        for name, call in calls:
            if not any(word in name for word in args.words):
                continue
            costs = {given: growth.cost(call, growth.string(given, 4 * args.length)) for given in growth.MOST}
            given = max(costs, key=lambda one: costs[one])
            times = [
                min(growth.cost(call, growth.string(given, n * args.length)) for _ in range(growth.ATTEMPTS))
                for n in (1, 2, 4)
            ]
            print(
                name, given, *(f"{1000 * one:.2f}" for one in times), f"{times[2] / times[0]:.1f}", sep="\t", flush=True
            )


if __name__ == "__main__":
    main()
