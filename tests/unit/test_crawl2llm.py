"""The command for people: every command is there, has a help with an example, and a wrong name is refused."""

import importlib

import pytest

from scripts import crawl2llm


@pytest.mark.parametrize("name", crawl2llm.COMMANDS)
def test_every_command_has_a_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    module, _ = crawl2llm.COMMANDS[name]
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(["--help"])
    assert ended.value.code == 0
    assert "example:" in capsys.readouterr().out


def test_the_list_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert crawl2llm.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in crawl2llm.COMMANDS)


def test_an_unknown_command_is_refused_with_those_that_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert crawl2llm.main(["staus"]) == 2
    assert "allowed are" in capsys.readouterr().err
