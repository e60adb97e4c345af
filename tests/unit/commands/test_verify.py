"""Verify: what is missing or damaged is named with what makes it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.commands import verify
from crawl2llm.core.manifest import Manifest, consumed_inputs, record_inputs


def made(results: Path, step: str, task: str, text: str, *inputs: Path, variant: str = "main") -> Path:
    folder = results / variant / step.replace(".", "/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task}.txt").write_text(text)
    with record_inputs() as opened:
        for path in inputs:
            _ = Manifest.read(path).files
    manifest = Manifest(step, "f", inputs=consumed_inputs(opened))
    return manifest.write(folder / f"{task}.manifest.json", [folder / f"{task}.txt"]).path or Path()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    first = made(tmp_path / "results", "ingest.extract", "00000", "abc")
    made(tmp_path / "results", "language.score", "00000", "xyz", first)
    return tmp_path / "results"


def run(results: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    status = verify.main(["--results", str(results), *options])
    return status, capsys.readouterr().out


def test_whole_results(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(results, capsys) == (
        0, "2 manifests, 2 files, 0.0 MB (sizes; --deep compares checksums): all as their manifests say\n"
    )  # fmt: skip
    assert run(results, capsys, "--deep")[0] == 0


def test_a_missing_file_and_another_size(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "main/ingest/extract/00000.txt").unlink()
    (results / "main/language/score/00000.txt").write_text("longer")
    status, shown = run(results, capsys)
    assert status == 1
    assert "00000.txt is missing" in shown and "has 6 bytes, not 3" in shown
    assert f"rm {results}/main/ingest/extract/00000.manifest.json && snakemake" in shown


def test_only_deep_sees_other_bytes_of_the_same_size(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "main/language/score/00000.txt").write_text("xyZ")
    assert run(results, capsys)[0] == 0
    status, shown = run(results, capsys, "--deep")
    assert status == 1 and "does not have the checksum" in shown


def test_an_input_that_was_made_anew_and_one_that_is_gone(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(results, "ingest.extract", "00000", "other")
    status, shown = run(results, capsys)
    assert status == 1 and "was made from another" in shown
    (results / "main/ingest/extract/00000.manifest.json").unlink()
    status, shown = run(results, capsys)
    assert status == 1 and "missing: " in shown and "1 result was made from" in shown


def test_a_damaged_manifest_and_no_results(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "main/language/score/00000.manifest.json").write_text("{")
    status, shown = run(results, capsys)
    assert status == 1 and "not a readable manifest" in shown
    assert verify.main(["--results", str(tmp_path / "nowhere")]) == 1
    assert "no such folder" in capsys.readouterr().err


def test_what_a_variant_no_longer_uses_is_not_taken_for_its_input(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variant once had documents of its own; now it reads those of main."""
    made(results, "ingest.extract", "00000", "old", variant="other")
    made(results, "language.score", "00000", "x", results / "main/ingest/extract/00000.manifest.json", variant="other")
    assert run(results, capsys)[0] == 0
    made(results, "ingest.extract", "00000", "newer")
    assert "was made from another" in run(results, capsys)[1]


def test_of_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Snakemake's --directory: what lies there is found, and compared with its inputs there."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    made(Path("results"), "language.score", "00000", "xyz", made(Path("results"), "ingest.extract", "00000", "abc"))
    monkeypatch.chdir(tmp_path)
    assert verify.main(["--directory", "run"]) == 0
    assert capsys.readouterr().out.startswith("2 manifests, 2 files")
    Path("run/results/main/ingest/extract/00000.manifest.json").unlink()
    assert verify.main(["--directory", "run"]) == 1
    assert "missing: run/results/main/ingest/extract/00000.manifest.json" in capsys.readouterr().out
