"""The report's table of exports, from their manifests."""

from __future__ import annotations

from pathlib import Path

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import export_table, summary

Q8 = {
    "type": "q8_0", "file": "both-Q8_0.gguf", "bytes": 5, "bits_per_byte": 1.72209, "transformers_bits_per_byte": 1.7219, "documents": 21,
    "tokens": 21132, "compared": 1024, "mean_difference": 0.028849, "same_argmax": 0.986328,
}  # fmt: skip


def test_a_row_for_each_file_that_can_be_taken(tmp_path: Path) -> None:
    folder = tmp_path / "results/main/compress/export"
    (folder / "both").mkdir(parents=True)
    files = [folder / "both" / name for name in ("model.safetensors", "config.json", "both-Q8_0.gguf")]
    for path, size in zip(files, (7, 2, 5), strict=True):
        path.write_bytes(b"x" * size)
    Manifest("compress.export", "0" * 16, summary={"of": "base", "gguf": [Q8]}).write(
        folder / "both.manifest.json", files
    )
    run = Run.read([folder / "both.manifest.json"])
    found = export_table.table(run, tmp_path / "results/main/report/render/report.html")
    whole, q8 = found["rows"]
    assert (whole["export"], whole["of"], whole["type"], whole["size"], whole["bits"]) == (
        "both",
        "Base model",
        "safetensors",
        "9\N{NO-BREAK SPACE}B",
        "–",
    )
    assert (q8["type"], q8["size"], q8["bits"], q8["apart"], q8["same"]) == (
        "q8_0",
        "5\N{NO-BREAK SPACE}B",
        "1.7221",
        "0.029",
        "98.6\N{NO-BREAK SPACE}%",
    )
    assert whole["link"] == q8["link"] == "../../compress/export/both/"
    assert "21 held-out documents (21,132 tokens)" in found["about"]
    (one,) = export_table.export_rows(run)
    assert (
        summary.export_line(one)
        == f"{folder / 'both'}, of base model: safetensors 9\N{NO-BREAK SPACE}B, q8_0 5\N{NO-BREAK SPACE}B"
    )
    assert export_table.table(Run(), tmp_path / "report.html")["rows"] == []


def test_the_card_of_a_parent_beside_gguf_files_is_no_row(tmp_path: Path) -> None:
    folder = tmp_path / "results/main/compress/export"
    (folder / "give").mkdir(parents=True)
    for path in (files := [folder / "give" / name for name in ("README-parent.md", "both-Q8_0.gguf")]):
        path.write_bytes(b"x")
    path = folder / "give.manifest.json"
    Manifest("compress.export", "0" * 16, summary={"of": "base", "gguf": [Q8]}).write(path, files)
    assert [file["type"] for file in export_table.export_rows(Run.read([path]))[0]["files"]] == ["q8_0"]
