"""Write what is generated: the schema for editors, the tables of keys, of steps and of plans, the training loop, and the rulegraph."""

from __future__ import annotations

from crawl2llm.chain.command_line import command_parser
from tools import editor_schema, loop_quote, plans, reference, rulegraph, steps_table


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm docs", __doc__, "", allow_abbrev=False)
    parser.parse_args(argv)
    editor_schema.main()
    reference.main()
    steps_table.main()
    loop_quote.main()
    plans.main()
    return rulegraph.main([])


if __name__ == "__main__":
    raise SystemExit(main())
