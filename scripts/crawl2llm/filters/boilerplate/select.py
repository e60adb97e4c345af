"""Drop the documents of which too little is left after the frequent lines of their host; those of curated sources stay.

Rules: `characters_min` (nothing is left), `words_min` and `removed_max`. Documents that nothing was taken out of stay.
"""

from __future__ import annotations

from pathlib import Path

from crawl2llm.chain import command_line
from crawl2llm.filters import edit_filter


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "boilerplate.select",
        __doc__,
        "--config config.yaml --signals results/main/boilerplate/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same boilerplate.score shard")
    return command_line.run_step(parser, edit_filter.write_verdicts, argv)


if __name__ == "__main__":
    raise SystemExit(main())
