"""GGUF by real llama.cpp: tokens, logits and bits per byte as transformers has them; what it cannot take is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import gguf, gguf_support
from crawl2llm.stages.compress.gguf_reference import TEXTS, auto_finds_tokenizer, own_tokenizer
from crawl2llm.stages.compress.settings import ExportSettings
from crawl2llm.stages.tokenize.train import train_bpe, untrained_tokenizer
from tests.unit.stages.compress.conftest import VOCABULARY, needs_llama, tokenizer_files, trained

SETTINGS: dict[str, Any] = {"max_tokens": 600, "compared_tokens": 200, "max_difference": 0.02, "seed": 0, "threads": 1}


def export_files(folder: Path, out: Path, tokens: Path, types: list[str], **changes: Any) -> dict[str, dict[str, Any]]:
    """What `gguf.export_gguf` found of a model's files, by type."""
    out.mkdir()
    found = gguf.export_gguf(
        folder,
        out,
        "small",
        types,
        [tokens],
        ExportSettings(**{**SETTINGS, **changes}),
        Manifest("compress.export", "0" * 16),
    )
    assert sorted(path.name for path in out.iterdir()) == sorted(one["file"] for one in found)
    return {one["type"]: one for one in found}


@needs_llama
@pytest.mark.slow
def test_each_type_is_the_model_less_what_its_bits_lose(
    random_model: Callable[..., Path], heldout: tuple[Path, Path], tmp_path: Path
) -> None:
    found = export_files(random_model("qwen3"), tmp_path / "out", heldout[1], ["f16", "q8_0", "q4_k_m"])
    assert [one["file"] for one in found.values()] == ["small-F16.gguf", "small-Q8_0.gguf", "small-Q4_K_M.gguf"]
    apart = [found[name]["mean_difference"] for name in ("f16", "q8_0", "q4_k_m")]
    assert 0 < apart[0] < apart[1] / 5 < apart[2] / 5, "fewer bits, other logits"
    assert found["f16"]["bytes"] > found["q8_0"]["bytes"] > found["q4_k_m"]["bytes"]
    assert found["f16"]["bits_per_byte"] == pytest.approx(found["f16"]["transformers_bits_per_byte"], abs=0.002)
    assert found["f16"]["same_argmax"] > 0.98 and found["f16"]["compared"] == SETTINGS["compared_tokens"]
    assert found["f16"]["notes"] == [] and found["f16"]["tensors"].keys() == {"F16"}
    (note,) = found["q4_k_m"]["notes"]
    assert note.startswith("q4_k_m packs blocks of 256 weights of a row, and rows here have 64, ") and "q5_0" in note
    assert "Q4_K" not in found["q4_k_m"]["tensors"]


@needs_llama
@pytest.mark.long
@pytest.mark.parametrize("kind", gguf_support.TYPES)
def test_every_type_that_is_taken_gives_the_logits_of_transformers(
    random_model: Callable[..., Path], heldout: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    shape = {"overrides": {"num_experts_per_tok": 2}} if kind in ("mixtral", "olmoe") else {}
    shape |= {"tie_embeddings": False} if kind in gguf_support.UNTIED_TYPES else {}
    shape |= {"kv_heads": 4} if kind in gguf_support.EQUAL_HEADS_TYPES else {}
    found = export_files(random_model(kind, **shape), tmp_path / "out", heldout[1], ["f32"])["f32"]
    assert found["mean_difference"] < 0.01 and found["same_argmax"] > 0.97
    assert found["bits_per_byte"] == pytest.approx(found["transformers_bits_per_byte"], abs=0.002)


@needs_llama
@pytest.mark.slow
def test_a_file_that_is_another_model_ends_the_task(
    random_model: Callable[..., Path], heldout: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converter is given a model whose positions turn at another pace."""
    right = random_model("llama")
    other = random_model("llama", "other", overrides={"rope_parameters": {"rope_type": "default", "rope_theta": 3.0}})
    run = gguf.run_job

    def of_another(home: Path, place: Path, **job: Any) -> dict[str, Any]:
        return run(home, place, **{**job, **({"model": str(other)} if job["do"] == "convert" else {})})

    monkeypatch.setattr(gguf, "run_job", of_another)
    with pytest.raises(
        InputError, match=r"small-F16.gguf: its logits .*max_difference allows 0.02: it is not the same model"
    ):
        export_files(right, tmp_path / "out", heldout[1], ["f16"])


@needs_llama
@pytest.mark.slow
def test_a_file_that_cuts_texts_otherwise_ends_the_task(
    random_model: Callable[..., Path], heldout: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "pre_tokenizer", lambda _: "deepseek-coder")  # it cuts at every line's end
    with pytest.raises(InputError, match=r"llama\.cpp cuts a text into other tokens than the model's tokenizer, at '"):
        export_files(random_model("llama"), tmp_path / "out", heldout[1], ["f16"])


@needs_llama
def test_what_llama_cpp_cannot_read_is_told_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\0" * 64)
    job = {
        "do": "quantize",
        "source": str(tmp_path / "bad.gguf"),
        "file": str(tmp_path / "x.gguf"),
        "type": "q8_0",
        "threads": 1,
    }
    with pytest.raises(InputError, match=r"llama.cpp, quantize q8_0, status 1: .*cannot make q8_0 of"):
        gguf.run_job(gguf_support.TOOLS.folder(), tmp_path, **job)


@needs_llama
@pytest.mark.long
@pytest.mark.parametrize("digits", [1, 3])
def test_llama_cpp_has_no_other_name_for_groups_of_digits(
    random_model: Callable[..., Path], tmp_path: Path, digits: int
) -> None:
    """Of all that its converter knows. If this fails for an update of llama.cpp, it has learnt more: add the name to PRE."""
    folder, home = random_model("llama"), gguf_support.TOOLS.folder()
    numbers = " ".join(str(number * number) for number in range(90))
    tokenizer_files(
        folder, train_bpe([numbers, *TEXTS] * 20, untrained_tokenizer(digits), VOCABULARY)
    )  # whose merges tell how texts are cut
    wanted = [[text, own_tokenizer(folder).encode(text).ids] for text in [*TEXTS, numbers]]
    (tmp_path / "ids.json").write_text(json.dumps(wanted), encoding="utf-8")
    file = tmp_path / "any.gguf"
    job = {"model": str(folder), "type": "f16", "name": "any", "file": str(file)}
    gguf.run_job(home, tmp_path, do="convert", converter=str(home / "llama.cpp"), pre="gpt-2", **job)
    path = os.pathsep.join([str(home / "site"), str(ROOT)])
    command = [sys.executable, "-m", "tests.unit.stages.compress.pre_tokenizers", str(file), str(tmp_path / "ids.json")]
    done = subprocess.run(
        [*command, str(home / "llama.cpp")],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    number, *names = done.stdout.split("\n")
    assert int(number.split()[0]) > 50
    found = {name for name in names if name}
    assert (gguf_support.PRE.get(digits) in found) == bool(found) == (digits in gguf_support.PRE), found


@pytest.mark.parametrize(("digits", "name"), [(0, "gpt-2"), (1, "smollm")])
def test_a_tokenizer_is_called_by_what_it_does(tmp_path: Path, digits: int, name: str) -> None:
    tokenizer_files(tmp_path, trained(digits))
    assert gguf.pre_tokenizer(tmp_path) == name


@pytest.mark.parametrize(("digits", "model"), [(3, "bpe"), (1, "unigram")])
def test_a_tokenizer_that_llama_cpp_has_not_is_refused(tmp_path: Path, digits: int, model: str) -> None:
    tokenizer_files(tmp_path, trained(digits, model))
    with pytest.raises(InputError, match=r"llama\.cpp has no tokenizer that cuts texts as this one does"):
        gguf.pre_tokenizer(tmp_path)


@pytest.mark.parametrize(("kind", "loader"), [("qwen2", "PreTrainedTokenizerFast"), ("qwen3", "AutoTokenizer")])
def test_the_card_names_what_loads_the_models_own_tokenizer(
    random_model: Callable[..., Path], kind: str, loader: str
) -> None:
    """AutoTokenizer takes another for a Qwen2, which is not that of the folder."""
    import transformers

    folder = random_model(kind)
    assert auto_finds_tokenizer(folder) == (loader == "AutoTokenizer")
    found = getattr(transformers, loader).from_pretrained(folder)
    for text in TEXTS[:-2]:
        assert found(text)["input_ids"] == own_tokenizer(folder).encode(text).ids


def config(model: dict[str, Any], tokenizer: dict[str, Any], types: list[str]) -> dict[str, Any]:
    """A complete config with an export of base."""
    return validate(
        {
            "models": {"give": {"from": "base", "step": "compress.export", "types": types}},
            "pretrain": {"train": {"model": model}},
            "tokenize": {"train": tokenizer},
        }
    )


@pytest.mark.parametrize(
    ("model", "tokenizer", "words"),
    [
        ({"type": "bloom"}, {"digits": 1}, f"llama.cpp takes {', '.join(gguf_support.TYPES)}, and it is 'bloom'"),
        ({"type": "olmoe", "tie_embeddings": True}, {"digits": 1}, "model.tie_embeddings false, and it is True"),
        (
            {"type": "olmoe", "tie_embeddings": False, "heads": 4, "kv_heads": 2},
            {"digits": 1},
            "kv_heads as heads, 4, and they are 2",
        ),
        ({}, {"digits": 1, "marks": "letters"}, "cut texts as tokenize.train.marks 'letters' does; allowed: 'separate'"),
        ({}, {"digits": 3}, "cut texts as tokenize.train.digits 3 does; allowed: 0, 1"),
        ({}, {"digits": 1, "model": "unigram"}, "of tokenize.train.model llama.cpp takes bpe, and it is 'unigram'"),
    ],
)  # fmt: skip
def test_refused_by_the_plan(model: dict[str, Any], tokenizer: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        gguf_support.check_exports(config(model, tokenizer, ["q8_0"]))
    assert str(caught.value).startswith("models.give.types asks for q8_0; ") and words in str(caught.value)
    gguf_support.check_exports(config(model, tokenizer, ["safetensors"]))


def test_tools_that_are_not_there_are_told_how_to_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_support.TOOLS.variable, str(tmp_path))
    with pytest.raises(
        InputError, match=r"models.give is exported as GGUF, and llama.cpp's tools are not in .*: make gguf-tools"
    ):
        gguf_support.check_tools(config({}, {"digits": 1}, ["q8_0"]))
    gguf_support.check_tools(config({}, {"digits": 1}, ["safetensors"]))
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp/convert_hf_to_gguf.py").touch()
    (tmp_path / "site/llama_cpp").mkdir(parents=True)
    (tmp_path / "site/llama_cpp/__init__.py").write_text('__version__ = "0.0.1"\n')
    assert "of another version than" in str(gguf_support.TOOLS.problem(tmp_path))


def test_the_lock_names_the_version_that_is_asked_for() -> None:
    assert f"llama_cpp_python=={gguf_support.VERSION} " in (ROOT / "envs/lock-gguf.txt").read_text()


@needs_llama
@pytest.mark.slow
def test_the_card_s_lines_for_llama_cpp_work(
    random_model: Callable[..., Path], heldout: tuple[Path, Path], tmp_path: Path
) -> None:
    """What the card tells to type, typed: in the folder, with llama.cpp's own module."""
    from crawl2llm.stages.compress import card

    # Tied, it would say the half of a letter again and again, which llama.cpp's module does not count as tokens.
    found = export_files(random_model("llama", tie_embeddings=False), tmp_path / "out", heldout[1], ["q8_0"])
    text = card.GGUF_CODE.format(file=found["q8_0"]["file"], call=card.CALLS[False])
    code = text.partition("```python\n")[2].partition("```")[0]
    environment = {**os.environ, "PYTHONPATH": str(gguf_support.TOOLS.folder() / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "out", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout, done.stderr[-2000:]
