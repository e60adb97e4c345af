"""The program of pretrain.continue. Python takes its name for a word of its own, so what it does is in continued.py."""

from __future__ import annotations

from crawl2llm.stages.pretrain.continued import main

if __name__ == "__main__":
    raise SystemExit(main())
