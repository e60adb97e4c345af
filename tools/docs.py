"""Write what is generated: the schema for editors, docs/config.md, docs/code.md, the tables of steps and of plans, and the rulegraph."""

from __future__ import annotations

from crawl2llm.chain.command_line import command_parser
from tools import editor_schema, plans, reference, rulegraph, tour


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm docs", __doc__, "", allow_abbrev=False)
    parser.parse_args(argv)
    editor_schema.main()
    reference.main()
    tour.main()
    plans.main()
    return rulegraph.main(["--readme"])


if __name__ == "__main__":
    raise SystemExit(main())
