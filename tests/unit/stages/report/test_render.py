"""report.render on a small finished run, and in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.formats.run_records import Run, read_benchmark, step_costs, sum_summaries, training_metrics
from crawl2llm.stages.report import funnel, page, provenance, samples, tables
from crawl2llm.stages.report.render import complete_config, main
from tests.unit.commands.plan.picture.browser import browser
from tests.unit.stages.report.conftest import save

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# As the workflow passes it, without the marks of code and of everything upstream.
SETTINGS = {"samples": 2, "sample_characters": 300, "seed": 0}
FINGERPRINT = json.dumps({"step": "report.render", "config": SETTINGS})


def render(manifests: list[Path], folder: Path, *more: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--config", FINGERPRINT, "--manifest", str(folder / "manifest.json"), *more]
    assert main([*arguments, "--manifests", *map(str, manifests)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="session")
def report(finished: list[Path]) -> Path:
    """The page of the run that all tests share."""
    folder = finished[0].parents[2] / "report/render"
    return render(
        finished,
        folder,
        "--complete-config",
        '{"report": {"render": {"samples": 2}}, "pretrain": {"train": {"epsilon": 1e-08}}}',
    )


class Page(HTMLParser):
    """Collects what the tests look at, and fails on a tag closed out of order."""

    VOID = {"meta", "br", "img", "link", "input", "hr", "wbr"}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attributes)
        self.ids += [str(values["id"])] if "id" in values else []
        self.links += [str(values[key]) for key in ("href", "src", "xlink:href") if key in values]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_self_contained_and_escaped(report: Path) -> None:
    text = report.read_text(encoding="utf-8").replace(page.NARROW, " ")
    parsed = Page(text)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert not {"script", "img", "iframe", "link", "object"} & set(parsed.tags)
    for link in parsed.links:
        assert link.startswith("#") or (report.parent / link).exists() or link == "counts.json", link
        assert not link.startswith("#") or link[1:] in parsed.ids, link
    assert "&lt;script&gt;alert(" in text
    assert "\u202e" not in text
    assert "41.0 % ± 1.6 %" in text and "chance 25.0 %" in text
    assert "base says &lt;b&gt;" in text
    assert "1.91" in text and "0.91" in text and "threshold 0.3" in text


def test_every_document_is_accounted_for(finished: list[Path]) -> None:
    run = Run.read(finished)
    rows = funnel.funnel_rows(run)
    assert [row["in"] for row in rows] == [70, 60, 56, 50, 46]
    assert all(row["joins"] for row in rows)
    for row in rows:
        assert row["in"] == row["kept"] + sum(reason["count"] for reason in row["reasons"])
    corpus = sum(run.summary("corpus.write", split, "bytes") for split in ("train", "validation"))
    hostile = 2 * (len("\u202e".encode()) - 1)  # the corpus' sizes in the fixture are characters
    assert abs(rows[-1]["kept_bytes"] - corpus) <= hostile
    assert [(reason["reason"], reason["count"], reason["unique"]) for reason in rows[2]["reasons"]] == [
        ("few_words", 6, 4), ("short_lines", 0, 0)]  # fmt: skip


def test_tokens_are_shown_by_source(finished: list[Path], report: Path) -> None:
    run = Run.read(finished)
    (row,) = (row for row in tables.source_rows(run) if row["name"] == "crawl")
    splits = [run.summary("tokenize.encode", split, "tokens") for split in ("train", "validation")]
    assert row["tokens"] == sum(splits) > 0
    assert f'<td class="n">{row["tokens"]:,}</td><td class="n">{row["bytes_per_token"]:.3g}</td>' in report.read_text(
        encoding="utf-8"
    )


def test_bits_per_byte_are_shown_by_source(report: Path) -> None:
    page = re.sub(r"\s+", " ", report.read_text())
    for source, bits, measured in (
        ("crawl", "1.87", "3 validation documents"),
        ("books", "2.04", "1 validation document,"),
    ):
        row = page[page.index(f"Bits per byte: {source}") :]
        assert bits in row[: row.index("</tr>")] and measured in row[: row.index("</tr>")]


def test_a_gap_between_stages_is_shown(run_folder: Path, manifests: list[Path]) -> None:
    path = run_folder / "dedup/select/manifest.json"
    path.write_text(path.read_text().replace('"in": 50', '"in": 49').replace('"kept": 46', '"kept": 45'))
    assert not next(row for row in funnel.funnel_rows(Run.read(manifests)) if row["stage"] == "dedup")["joins"]
    assert "from different runs" in render(manifests, run_folder / "report/render").read_text(encoding="utf-8")


def test_manifest_lists_only_what_the_input_decides(report: Path, finished: list[Path]) -> None:
    manifest = Manifest.read(report.with_name("manifest.json"))
    assert list(manifest.files) == ["counts.json", "funnel.json"]

    def files() -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in sorted(report.parent.rglob("*"))
            if path.suffix in {".json", ".svg"} and path.name != "run.json"  # says which machine rendered it
        }

    before = files()
    render(finished, report.parent)
    assert before == files()
    assert sorted(before) == [
        "bits-per-byte.svg",
        "counts.json",
        "funnel.json",
        "funnel.svg",
        "loss.svg",
        "manifest.json",
    ]


def test_an_unfinished_run_is_reported(run_folder: Path, manifests: list[Path]) -> None:
    """Without all that the figures show; each step's own absence is tested on a real run, in tests/workflow."""
    gone = {"pretrain.train", "quality.select", "corpus.write", "ingest.extract", "language.select"}
    rest = [path for path in manifests if Manifest.read(path).step not in gone]
    Page(render(rest, run_folder / "report/render").read_text(encoding="utf-8"))


def test_one_manifest_is_enough(run_folder: Path) -> None:
    Page(
        render([run_folder / "tokenize/train/manifest.json"], run_folder / "report/render").read_text(encoding="utf-8")
    )


def test_tokenizers_that_models_have_are_shown(run_folder: Path) -> None:
    """The run's own is that of `base`; one that came with a published model is that of what is made from it."""
    published = save(
        run_folder, "pretrain.published", "tiny", summary={"name": "Tiny", "parameters": 9, "vocabulary": 777}
    )
    text = {"documents": 5, "tokens": 105, "bytes": 450}
    encoded = save(run_folder, "tokenize.reencode", "tiny", summary={"validation": text})
    own = run_folder / "tokenize/train/manifest.json"
    base = {"name": "base", "from": None, "step": "pretrain.train"}
    tiny = {"name": "tiny", "from": None, "step": "pretrain.published"}
    for models in ([base, tiny], [tiny]):
        fingerprint = json.dumps({"step": "report.render", "config": {**SETTINGS, "models": models}})
        page = render([own, published, encoded], run_folder / "report/render", "--config", fingerprint).read_text()
        section = page[page.index('<section id="tokenizer">') : page.index("</section>", page.index('id="tokenizer"'))]
        assert "tiny has its own tokenizer with <b>777</b>" in section and "<b>4.5</b> bytes of text" in section
        shown = [words in section for words in ("trained on this corpus with <b>512</b>", "Longest tokens")]
        assert shown == [base in models] * 2


def test_missing_and_odd_values_show_as_a_dash(run_folder: Path, manifests: list[Path]) -> None:
    for path in manifests:
        body = json.loads(path.read_text())
        body["summary"] = {key: None for key in body["summary"]}
        path.write_text(json.dumps(body))
    assert "–" in render(manifests, run_folder / "report/render").read_text(encoding="utf-8")


def test_samples_do_not_depend_on_the_order_of_shards(finished: list[Path]) -> None:
    kept, dropped = samples.pick_documents(Run.read(finished), 2, seed=0)
    backwards = Run.read(finished)
    backwards.manifests["corpus.write"].reverse()
    assert (kept, dropped) == samples.pick_documents(backwards, 2, seed=0)
    assert len(kept) == 2
    assert {group: len(rows) for group, rows in dropped.items()} == {
        ("dedup", "exact"): 2, ("dedup", "near"): 2, ("heuristics", "few_words"): 2,
        ("language", "score"): 2, ("quality", "fraction"): 2}  # fmt: skip


def test_duplicates_are_shown_beside_what_stayed(finished: list[Path]) -> None:
    found = samples.gather_samples(Run.read(finished), 2, 400, seed=0)
    near = next(group for group in found["dropped"]["dedup"] if group["reason"] == "near")["rows"][0]["compared"]
    assert {text for text, differs in near["dropped"] if differs} == {"persons"}
    assert {text for text, differs in near["kept"] if differs} == {"people"}
    exact = next(group for group in found["dropped"]["dedup"] if group["reason"] == "exact")["rows"][0]
    assert exact["compared"]["equal"]
    assert list(found["records"]) == ["empty"] and len(found["records"]["empty"]) == 2


@given(st.lists(st.text(min_size=1), unique=True, max_size=60), st.integers(0, 8), st.integers(0, 9))
def test_pick_keeps_the_smallest_hashes(ids: list[str], size: int, seed: int) -> None:
    pick = samples.Pick(size, seed)
    for name in ids:
        pick.add(("all",), name, {"id": name})
    wanted = sorted(ids, key=lambda name: (uniform_hash(seed, name, samples.SALT), name))[:size]
    assert [row["id"] for row in pick.groups().get(("all",), [])] == wanted


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.integers(100, 200))
def test_compared_marks_exactly_the_differences(a: list[str], b: list[str], limit: int) -> None:
    found = samples.side_by_side(" ".join(a), " ".join(b), limit)
    same = [[text for text, differs in found[side] if not differs] for side in ("dropped", "kept")]
    assert same[0] == same[1] or min(map(len, (" ".join(a), " ".join(b)))) > limit
    assert found["equal"] == (a == b)
    for side, words in (("dropped", a), ("kept", b)):
        text = " ".join(part for part, _ in found[side])
        assert len(text) <= limit
        start = found["skipped"] + found["before"][side == "kept"]
        assert text.split() == words[start:][: len(text.split())]


def test_two_texts_that_begin_with_other_words_start_where_they_are_alike() -> None:
    """Menus of different lengths stand before the same text, which differs in one word."""
    text = [f"word{number}" for number in range(60)]
    other = [*text[:30], "another", *text[31:]]
    found = samples.side_by_side(" ".join([f"menu{n}" for n in range(200)] + text), " ".join(["home", *other]), 400)
    assert found["skipped"] == 0 and found["before"] == (192, 0)
    assert found["dropped"][0] == (" ".join(f"menu{n}" for n in range(192, 200)), True)
    assert found["kept"][0] == ("home", True)
    assert found["dropped"][1] == found["kept"][1] == (" ".join(text[:30]), False)
    assert found["dropped"][2] == ("word30", True) and found["kept"][2] == ("another", True)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 99)), max_size=5))
def test_added_is_a_sum_by_key(parts: list[dict[str, int]]) -> None:
    total = sum_summaries(parts) or {}
    for key in "abc":
        assert total.get(key, 0) == sum(part.get(key, 0) for part in parts)


def test_metrics_survive_a_torn_line_and_count_a_repeated_step_once(run_folder: Path, manifests: list[Path]) -> None:
    with (run_folder / "pretrain/train/metrics.jsonl").open("a") as out:
        out.write('\n{"step": 60, "tokens": 60000, "loss": 1.25}\n')
    rows = training_metrics(Run.read(manifests), "pretrain.train")
    assert [row["step"] for row in rows] == list(range(1, 61))
    assert rows[-1]["loss"] == 1.25
    assert rows[-1]["bits_per_byte"] == pytest.approx(1.9)


def test_validation_between_two_logged_steps_gets_its_tokens(run_folder: Path, manifests: list[Path]) -> None:
    path = run_folder / "pretrain/train/metrics.jsonl"
    rows = [
        {"step": 10, "tokens": 1000, "loss": 5.0},
        {"step": 15, "validation_loss": 4.0},
        {"step": 20, "tokens": 3000},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert [row["tokens"] for row in training_metrics(Run.read(manifests), "pretrain.train")] == [1000, 2000, 3000]


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("s\tmax_rss\tcpu_time\n0.2\t0.00\tNA\n2\t3\t1\n-\t-\t-\n")
    assert read_benchmark(path) == [{"s": 0.2}, {"s": 2, "max_rss": 3 * 2**20, "cpu_time": 1}, {}]


def test_costs_are_those_of_the_benchmark_files(finished: list[Path]) -> None:
    row = next(row for row in step_costs(Run.read(finished)) if row["step"] == "corpus.write")
    assert row == {"step": "corpus.write", "owner": "main", "tasks": 2, "seconds": 5.0, "longest": 2.5,
                   "cpu_seconds": 1.5, "memory": 112 * 2**20}  # fmt: skip


def test_machines_and_versions_are_those_of_the_records(run_folder: Path, manifests: list[Path]) -> None:
    def note(name: str, **facts: Any) -> None:
        (run_folder / name).write_text(json.dumps({"machine": {"host": "a", "processor": "P"}, **facts}))

    note("dedup/select/run.json", versions={"python": "3.11.7", "numpy": "2.4"})
    note("quality/train/run.json", versions={"python": "3.12.1"})
    note("pretrain/train/run.json", devices={"NVIDIA H200": 8}, nodes=2)
    (run_folder / "quality/select/run.json").write_text("{")
    rows = [tuple(row.values()) for row in provenance.machine_rows(Run.read(manifests))]
    assert rows == [
        ("processor", "P", ""),
        ("python", "3.11.7", "dedup.select"),
        ("python", "3.12.1", "quality.train"),
        ("numpy", "2.4", ""),
        ("devices", "8 × NVIDIA H200; 2 nodes", "pretrain.train"),
    ]
    assert "8 × NVIDIA H200" in render(manifests, run_folder / "report/render").read_text(encoding="utf-8")


def test_complete_config_of_a_variant() -> None:
    given_ = '{"report": {"render": {"samples": 4}}, "variants": {"few": {"report": {"render": {"samples": 1}}}}}'
    for variant, wanted in (("few", 1), ("main", 4)):
        found = complete_config([given_], variant)
        assert found is not None and found["report"]["render"]["samples"] == wanted
    assert complete_config([], "main") is None


def test_unreadable_complete_config_is_an_error(run_folder: Path, manifests: list[Path], capsys: Any) -> None:
    arguments = ["--config", FINGERPRINT, "--manifest", str(run_folder / "report/render/manifest.json")]
    assert main([*arguments, "--complete-config", "{nonsense", "--manifests", str(manifests[0])]) == 1
    assert "--complete-config" in capsys.readouterr().err


def test_numbers_are_written_with_units() -> None:
    plain = lambda texts: [text.replace(page.NARROW, " ") for text in texts]  # noqa: E731
    assert [page.format_integer(1234567), page.format_integer(None), page.format_integer(float("nan"))] == [
        "1,234,567",
        "–",
        "–",
    ]
    assert plain([page.format_short(1234567), page.format_short(950)]) == ["1.23 M", "950"]
    assert plain([page.format_bytes(999), page.format_bytes(1234567)]) == ["999 B", "1.23 MB"]
    assert plain([page.format_duration(7.25), page.format_duration(75), page.format_duration(4020)]) == [
        "7.2 s",
        "1 min 15 s",
        "1 h 07 min",
    ]
    assert plain([page.format_percent(0.254), page.format_memory(3 * 2**29)]) == ["25.4 %", "1.50 GiB"]
    assert [page.format_significant(value) for value in (0, 3.14159, 41.2345, 12345.6, 0.00001)] == [
        "0", "3.142", "41.23", "12,346", "1.000e-05"]  # fmt: skip


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine")
def test_opens_in_a_browser_without_errors_or_requests(report: Path, tmp_path: Path) -> None:
    log = tmp_path / "network.json"
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0", f"--log-net-log={log}",
        "--virtual-time-budget=2000", "--dump-dom", report.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "From a web crawl to a language model" in done.stdout
    assert "CONSOLE" not in done.stderr, done.stderr
    hosts = set(re.findall(r"https?://([^/\"\\]+)", log.read_text(encoding="utf-8", errors="replace")))
    assert not any("example" in host for host in hosts), hosts


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine")
def test_on_a_phone_the_page_does_not_scroll_sideways(report: Path, tmp_path: Path) -> None:
    """Wide tables scroll by themselves, with words for screen readers at their ends too; names of keys wrap. With every part open."""
    long = "heuristics.select.c4." + "policy_lines_" * 9
    table = f'<tr><td class="n">{long}</td><th scope="col"><span class="hidden">Share as a bar</span></th></tr>'
    more = f'<p>Set <code>{long}</code>.</p><div class="scroll"><table>{table}</table></div>'

    async def look() -> None:
        async with browser(tmp_path / "profile") as opened:
            await opened.open(report, 390)
            await opened.value("document.querySelectorAll('details').forEach((one) => one.open = true)")
            await opened.value(f"document.querySelector('main').insertAdjacentHTML('beforeend', {json.dumps(more)})")
            for width in (390, 320):
                await opened.size(width, 844)
                assert await opened.value("document.documentElement.scrollWidth") <= width
            assert await opened.value(
                "[...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)"
            )

    asyncio.run(look())


def test_documents_of_sources_that_skip_a_filter_are_shown_by_filter() -> None:
    exempt = {"language": (2, 3), "heuristics": (0,), "dedup": (4000,)}
    made = {
        f"{name}.select": [Manifest(f"{name}.select", "x", summary={"source_exempt": number}) for number in numbers]
        for name, numbers in exempt.items()
    }
    assert tables.corpus_facts(Run(made))[:2] == [
        ("Documents exempt from language", "5", "of sources that skip it; it would have dropped them"),
        ("Documents exempt from dedup", "4,000", "of sources that skip it; they took no part"),
    ]


def test_values_beside_the_text_that_were_not_read() -> None:
    shards = [{"s": {"url": 2, "date": 1}}, {"s": {"url": 1}, "t": {"id": 5}}]
    made = {"ingest.extract": [Manifest("ingest.extract", "x", summary={"unreadable": one}) for one in shards]}
    assert tables.corpus_facts(Run(made)) == [
        ("Values beside the texts not read", "9", "null in the documents; t: id 5, s: url 3, s: date 1")
    ]
