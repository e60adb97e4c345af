"""Rewards that can be verified, and what of them is refused."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import fingerprint
from crawl2llm.core.content_hash import imported_files
from crawl2llm.core.errors import InputError
from crawl2llm.stages.align.rewards import Rewards, check_entries
from crawl2llm.stages.align.settings import RewardEntry
from tests.unit.stages.align.test_tracked import config, mark

KEY = "align.train.rewards"


def worth(entry: dict[str, Any], answer: str, reference: str | None = None) -> float:
    return Rewards([RewardEntry(**entry)], KEY).answer_values("Why?", answer, reference)[0]


@pytest.mark.parametrize(
    ("entry", "answer", "reference", "value"),
    [
        ({"reward": "exact"}, "  forty  TWO", "Forty two", 1),
        ({"reward": "exact"}, "42", "41", 0),
        ({"reward": "exact"}, "42", None, 0),
        ({"reward": "exact", "pattern": r"#### (?P<answer>\d+)"}, "so #### 3 and #### 42", "42", 1),
        ({"reward": "exact", "pattern": r"#### (?P<answer>\d+)"}, "42", "42", 0),
        ({"reward": "exact", "pattern": r"#### (?P<answer>\d+)|none"}, "#### 42 none", "42", 0),
        ({"reward": "format", "pattern": r"Return [^.]*\."}, "Return it.", None, 1),
        ({"reward": "format", "pattern": r"Return [^.]*\."}, "Return it. Or not.", None, 0),
        ({"reward": "length", "least": 2, "most": 4}, "one two three", None, 1),
        ({"reward": "length", "least": 2, "most": 4}, "one", None, 0.5),
        ({"reward": "length", "most": 4}, "a b c d e f g h", None, 0.5),
        ({"reward": "length", "least": 2}, "", None, 0),
    ],
)
def test_worth(entry: dict[str, Any], answer: str, reference: str | None, value: float) -> None:
    assert worth(entry, answer, reference) == value


def test_weights_add_up(tmp_path: Path) -> None:
    (tmp_path / "help.py").write_text("ENDS = '.'\n")
    (tmp_path / "mine.py").write_text(
        "from help import ENDS\n\ndef ends(question, answer, reference):\n    return answer.endswith(ENDS)\n"
    )
    ends = RewardEntry(function=f"{tmp_path}/mine.py:ends", weight=2)
    found = Rewards([ends, RewardEntry(reward="length", most=2, weight=-1)], KEY)
    assert found.names == ["ends", "length"]
    assert found.weighted_sum(found.answer_values("q", "two words.", None)) == 2 * 1 - 1
    assert imported_files(tmp_path / "mine.py") == [tmp_path / "help.py", tmp_path / "mine.py"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, r"align\.train\.rewards\[0\] is \{\}; give `function`, or `reward`: one of exact, format, length, model"),
        (
            {"reward": "exact", "least": 2},
            r"\[0\]\.least goes with another reward; allowed beside this one: pattern, reward, weight",
        ),
        ({"reward": "exact", "pattern": "a"}, r"must have a group"),
        ({"reward": "format"}, r"\[0\] lacks `pattern`"),
        ({"reward": "format", "pattern": "("}, r"\[0\]\.pattern is '\(': missing \)"),
        ({"reward": "length"}, r"give `least`, `most` or both"),
        ({"reward": "length", "least": 3, "most": 2}, r"`least` not above `most`"),
        ({"reward": "model"}, r"give `name`, of a model of align\.reward, or `manifest`"),
        ({"reward": "model", "name": "rm", "manifest": "rm.manifest.json"}, r"give `name`, .* or `manifest`"),
        (
            {"reward": "model", "pattern": "a"},
            r"\[0\]\.pattern goes with another reward; allowed beside this one: manifest, name",
        ),
        ({"function": "mine.py"}, r"\[0\]\.function is 'mine\.py'; allowed is path/to/file\.py:function"),
        ({"function": "nowhere.py:f"}, r"\[0\]\.function is 'nowhere\.py:f': .*No such file"),
    ],
)
def test_what_is_refused(entry: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_entries([RewardEntry(**entry)], KEY)


def test_a_function_that_is_not_there_or_fails(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def bad(q, a, r):\n    return a[99]\n\ndef none(q, a, r):\n    return float('nan')\n")
    with pytest.raises(InputError, match=r"mine\.py:other'; functions of the file: bad, none"):
        check_entries([RewardEntry(function=f"{file}:other")], KEY)
    with pytest.raises(InputError, match=r"failed on the answer 'abc': IndexError"):
        worth({"function": f"{file}:bad"}, "abc")
    with pytest.raises(InputError, match="returned nan for the answer"):
        worth({"function": f"{file}:none"}, "abc")


def test_files_have_their_own_modules_of_the_same_name(tmp_path: Path) -> None:
    """On import and when the function is called; a module is run once."""
    entries = []
    for number in (1, 2):
        folder = tmp_path / f"rewards{number}"
        (folder / "parts").mkdir(parents=True)
        (folder / "helper_of_both.py").write_text(f"VALUE = {number}\n")
        (folder / "parts/__init__.py").write_text("from parts.inner import VALUE\n")
        (folder / "parts/inner.py").write_text(f"VALUE = {number * 10}\n")
        (folder / "later.py").write_text(f"import os\nVALUE, CALLS = {number * 100}, []\n")
        (folder / "mine.py").write_text(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "import parts\nfrom helper_of_both import VALUE\n\n"
            "@dataclass\nclass Held:\n    value: int = VALUE + parts.VALUE\n\n"
            "def f(q, a, r):\n    import later\n    later.CALLS.append(a)\n"
            "    return Held().value + later.VALUE + 1000 * len(later.CALLS)\n"
        )
        entries.append(RewardEntry(function=f"{folder}/mine.py:f"))
    path, modules = list(sys.path), set(sys.modules)
    found = Rewards(entries, KEY)
    assert [found.answer_values("q", "a", None) for _ in range(2)] == [[1111, 1222], [2111, 2222]]
    assert sys.path == path and sys.modules.keys() - modules <= {"dataclasses"}


def test_a_package_that_the_program_uses_stays_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "used_by_all").mkdir()
    (tmp_path / "used_by_all/__init__.py").write_text("")
    (tmp_path / "used_by_all/inner.py").write_text("VALUE = 3\n")
    (tmp_path / "mine.py").write_text("from used_by_all.inner import VALUE\n\ndef f(q, a, r): return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "used_by_all", importlib.import_module("used_by_all"))
    assert worth({"function": f"{tmp_path}/mine.py:f"}, "abc") == 3
    assert sys.path[0] == str(tmp_path) and "used_by_all.inner" in sys.modules
    del sys.modules["used_by_all.inner"]


@pytest.mark.parametrize(
    "code", ["import sys\ndef f(q, a, r):\n    sys.exit(0)\n", "def f(q, a, r): 0\nraise SystemExit"]
)
def test_a_function_does_not_end_the_run(tmp_path: Path, code: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(InputError, match=r"mine\.py:f'.* failed.*: SystemExit: "):
        worth({"function": f"{tmp_path}/mine.py:f"}, "abc")


def test_an_edit_of_a_function_or_of_what_it_imports_trains_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "help.py").write_text("ENDS = '.'\n")
    (tmp_path / "mine.py").write_text("import help\n\ndef ends(q, a, r):\n    return a.endswith(help.ENDS)\n")
    (tmp_path / "other.py").write_text("")
    made = config({"align.train.rewards": [{"function": "mine.py:ends"}], "align.train.method": "grpo"})
    marks = [mark(made, "align.train", "dpo")]
    for name in ("other.py", "help.py", "mine.py"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "X = 1\n")
        marks.append(mark(made, "align.train", "dpo"))
    assert marks[0] == marks[1] != marks[2] != marks[3]
    assert fingerprint.file_hashes("align.pairs", made) == {}
