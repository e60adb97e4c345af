"""What is said of tools that are not there, or of another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.filters.quality.tools import KENLM
from crawl2llm.stages.compress.gguf_support import TOOLS
from crawl2llm.stages.compress.quantize_tools import ENVIRONMENT
from crawl2llm.training.float8 import TORCHAO

CASES = {
    TOOLS: (
        "llama.cpp's tools are not in {}: make them once, with a network: make gguf-tools "
        "(minutes; CRAWL2LLM_GGUF names another folder)",
        "llama.cpp's tools in {} are of another version than ",
        ("site/llama_cpp/__init__.py", "llama.cpp/convert_hf_to_gguf.py"),
    ),
    KENLM: (
        "KenLM's programs are not in {}: make them once, with a network: make kenlm-tools "
        "(two minutes; CRAWL2LLM_KENLM names another folder)",
        "KenLM's programs in {} are of another version than ",
        ("lmplz", "build_binary", "query", "version"),
    ),
    ENVIRONMENT: (
        "the quantizers' environment is not in {}: make it once, with a network: make quantize-tools "
        "(some minutes, 1.5 GB; CRAWL2LLM_QUANTIZE names another folder)",
        "the quantizers' environment in {} is of other packages than envs/lock-quantize.txt: make it once",
        ("bin/python", ".installed"),
    ),
    TORCHAO: (
        "torchao is not in {}: make it once, with a network: make fp8-tools (seconds, 26 MB; CRAWL2LLM_FP8 names another folder)",
        "torchao in {} is of another version than ",
        ("torchao/__init__.py",),
    ),
}


@pytest.mark.parametrize("tool", CASES, ids=lambda tool: tool.target)
def test_what_is_said_of_a_tool(tool: ExternalTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, outdated, files = CASES[tool]
    monkeypatch.delenv(tool.variable, raising=False)
    assert tool.folder().name == tool.default_folder
    monkeypatch.setenv(tool.variable, str(tmp_path))
    assert tool.folder() == tmp_path and tool.problem() == absent.format(tmp_path)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    assert str(tool.problem()).startswith(outdated.format(tmp_path))
    assert tool.problem(tmp_path / "elsewhere") == absent.format(tmp_path / "elsewhere")
