"""Drop the documents of which too little is left after the passages that others have too; those of curated sources stay.

Rules: `characters_min` (nothing is left), `words_min` and `removed_max`. Documents that nothing was taken out of stay.
"""

from __future__ import annotations

from pathlib import Path

from scripts.formats import left
from scripts.workflow import cli


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "substrings.select",
        __doc__,
        "--config config.yaml --signals results/main/substrings/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same substrings.score shard")
    return cli.run(parser, left.select, argv)


if __name__ == "__main__":
    raise SystemExit(main())
