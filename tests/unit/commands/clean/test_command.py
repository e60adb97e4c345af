"""What `crawl2llm clean` lists and removes, of a folder that holds some of everything: what the config uses stays."""

from __future__ import annotations

import fcntl
import io
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.__main__ import main
from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.commands.clean import candidates, command
from crawl2llm.core import code_snapshot
from crawl2llm.core.manifest import Manifest, digest
from crawl2llm.workflow import unused

SFT: dict[str, Any] = {"from": "base", "step": "finetune.train"}
WEB: dict[str, Any] = {"name": "web", "kind": "crawl"}
CONFIG: dict[str, Any] = {"ingest": {"extract": {"shards": 1, "sources": [WEB]}}, "filters": ["dedup"]}


def config(**more: Any) -> Project:
    tree = {**CONFIG, "models": {"sft": SFT}, **more}
    Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    return Project(configuration.validate(tree))


def made(project: Project, step: str, task: str = "", variant: str = "main") -> Path:
    """A result with a file of 1,000 bytes and the benchmark file of two minutes' work; returns its manifest."""
    manifest = Path(project.manifest_path(variant, step, task))
    data = manifest.parent / (task or "data") / "weights"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_bytes(bytes(1000))
    measured = manifest.parents[2] / "benchmarks" / manifest.parts[2] / f"{manifest.parts[3]}.tsv"
    measured = measured.with_suffix("") / f"{task}.tsv" if task else measured
    measured.parent.mkdir(parents=True, exist_ok=True)
    measured.write_text("s\n120\n")
    mark = digest(project.fingerprint(variant, step, task))
    Manifest(step, mark, inputs={"pretrain.train": {"model": "0"}}).write(manifest, [data])
    return manifest


def saved(name: str, manifest: Path, mark: str, steps: tuple[int, ...] = (10, 20, 30)) -> Path:
    """A folder of checkpoints of a training whose result is to be at `manifest`."""
    folder = Path("checkpoints", name)
    for step in steps:
        weights = folder / f"step-{step:06d}/weights"
        weights.parent.mkdir(parents=True)
        weights.write_bytes(bytes(100))
    (folder / "training.json").write_text(json.dumps({"manifest": str(manifest), "fingerprint": mark, "others": {}}))
    return folder


def contents() -> dict[str, tuple[int, bytes]]:
    """Every file by its path, with its time; a link as what it says."""
    found = {}
    for path in sorted(Path().rglob("*")):
        if path.is_symlink():
            found[str(path)] = 0, str(path.readlink()).encode()
        elif path.is_file():
            found[str(path)] = path.stat().st_mtime_ns, path.read_bytes()
    return found


def plant(folder: Path) -> dict[str, bool]:
    """A run's folder with some of everything; {path: whether the config uses it}."""
    before = config(
        models={"sft": SFT, "gone": SFT},
        filters=["url", "dedup"],
        variants={"old": {"pretrain": {"train": {"steps": 7}}}},
    )
    uses = {}
    for step, task, variant in (
        ("pretrain.train", "", "main"), ("finetune.train", "sft", "main"), ("finetune.train", "gone", "main"),
        ("url.select", "", "main"), ("corpus.split", "", "main"), ("pretrain.train", "", "old"), ("finetune.train", "sft", "old"),
    ):  # fmt: skip
        own = task if step == "finetune.train" else ""
        uses[str(made(before, step, own, variant))] = variant == "main" and (step, task) not in (
            ("finetune.train", "gone"),
            ("url.select", ""),
        )
    now = config()
    for step in ("pretrain.train", "corpus.split"):
        made(now, step)
    made(now, "finetune.train", "sft")
    unused.make_moves(unused.moves_aside(now.variants))
    gone = unused.find_set_aside()[0]
    uses = {name: used for name, used in uses.items() if "gone" not in name} | {str(gone.manifest_path): False}

    base, sft = (Path(now.manifest_path("main", *task)) for task in (("pretrain.train", ""), ("finetune.train", "sft")))
    ended = saved("1" * 16, base, Manifest.read_unchecked(base).fingerprint)
    uses |= {str(ended / f"step-{step:06d}/weights"): step == 30 for step in (10, 20, 30)}
    trained, place = (
        Path("results/main/finetune/train/gone.manifest.json"),
        Path("results/main/align/train/dpo.manifest.json"),
    )
    for name, manifest, mark, used in (
        ("2" * 16, sft, "0" * 16, False),  # of other settings: the result of today's is there
        ("3" * 16, place, "0" * 16, True),  # did not end
        ("4" * 16, trained, unused.mark_of(gone.manifest_path), False),
        ("5" * 16 + "-01234567", base, "0" * 16, False),
        ("6" * 16, Path("results/old/pretrain/train/manifest.json"), "1" * 16, True),  # did not end
        ("mine", sft, "", True),
    ):
        uses[str(saved(name, manifest, mark) / "step-000010/weights")] = used
    (Path("checkpoints/mine") / "training.json").unlink()

    for name, used in (
        (".cache/who-wrote/main/index", False), (".cache/judge/aa/b.json", False), (".snakemake/meanings.json", False),
        (".snakemake/frozen/0123/Snakefile", False), (".snakemake/log/a.log", True), ("results/notes/mine.txt", True),
        ("results/main/report/now/report.html", True), ("logs/main/a.log", True), ("thesis.tex", True),
    ):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        uses[name] = used
    return uses


@pytest.fixture
def uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    found = plant(folder)
    assert all(Path(name).is_file() for name in found)
    return found


def test_looking_changes_nothing_and_names_everything(
    uses: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents()
    assert main(["clean", "--dry-run", "--yes"]) == 0
    assert contents() == before
    said = capsys.readouterr().out
    for words in (
        r"kB  the model gone, which the config no longer has \(finetune.train\): .* takes 2.min 00.s \(measured\)",
        r"steps of main that the config does not use \(url.select\): ",
        r"the variant old, which the config no longer has \(pretrain.train, finetune.train\): .* 4.min 00.s",
        rf"0 kB  old checkpoints of base, whose training ended, in checkpoints/{'1' * 16}: .*the newest stays",
        rf"checkpoints of sft that the config has no training for, checkpoints/{'2' * 16}",
        rf"checkpoints of a training by other code, checkpoints/{'5' * 16}-01234567",
        "indexes in .cache/who-wrote", "replies of endpoints in .cache/judge", "caches of plans", "copies of code and config",
        r"[kM]B  in all",
    ):  # fmt: skip
        assert re.search(words, said), (words, said)


def test_what_the_config_uses_stays_and_the_rest_goes(
    uses: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents()
    assert main(["clean", "--yes"]) == 0, capsys.readouterr()
    left = {name: Path(name).is_file() for name in uses}
    assert left == uses
    after = contents()
    assert {name: held for name, held in after.items() if name != ".snakemake/run.lock"}.items() <= before.items()
    assert not Path("results/main/unused").exists() and not Path("results/old").exists()
    capsys.readouterr()
    assert main(["clean", "--yes"]) == 0
    assert "nothing to free: the config uses all that is here" in capsys.readouterr().out
    project = config()
    assert not [
        name for name in ("pretrain.train", "corpus.split") if not Path(project.manifest_path("main", name)).exists()
    ]


def test_one_kind_alone(uses: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "caches", "--yes"]) == 0
    gone = {name for name in uses if not Path(name).exists()}
    assert gone == {name for name, used in uses.items() if not used and name.startswith(".")}
    assert main(["clean", "cache"]) == 1
    assert "'cache' is nothing to look for; allowed are models, checkpoints, results, caches" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "said"), [("n\n", "nothing was removed"), ("", "--yes does it without a question"), ("yes\n", "removed")]
)
def test_a_person_is_asked(
    uses: dict[str, bool], answer: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["clean"]) == (0 if answer == "yes\n" else 1)
    assert said in capsys.readouterr().out
    assert all(Path(name).exists() for name in uses) is (answer != "yes\n")


def test_what_a_list_of_the_config_names_stays(uses: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    place = Path("results/old/finetune/train/sft/pages.txt")
    place.write_text("x")
    Path("list.txt").write_text(f"{place}\n")
    named = {"name": "earlier", "kind": "text", "paths": ["@list.txt"]}
    config(ingest={"extract": {"shards": 1, "sources": [WEB, named]}})
    assert main(["clean", "--yes"]) == 0
    assert place.is_file() and "ingest.extract.sources names it" in capsys.readouterr().out


def test_what_the_config_names_stays(uses: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    """Results of an earlier variant may be a source, and a checkpoint the start of a training."""
    place = Path("results/old/corpus/write/train/00000.parquet")
    place.parent.mkdir(parents=True)
    place.write_text("x")
    named = Path("checkpoints", "1" * 16, "step-000020")
    sources = [WEB, {"name": "old", "kind": "parquet", "paths": ["results/old/*/write/**"]}]
    tree = {**CONFIG, "ingest": {"extract": {"shards": 1, "sources": sources}}, "models": {"sft": SFT}}
    tree["pretrain"] = {"train": {"stage_to": str(named.absolute())}}
    Path("config.yaml").write_text(yaml.safe_dump(tree))
    assert main(["clean", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "results/old/pretrain/train stays" not in said, "a pattern of other folders"
    assert place.exists() and (named / "weights").exists() and not (named.parent / "step-000010").exists()
    assert f"{named} stays: pretrain.train.stage_to names it" in said


@pytest.mark.parametrize(
    "how",
    ["{folder}/results/old/corpus/*.gz", "../run/results/old/corpus", "@link/corpus", "results/*/*/x", "./results/**"],
)
def test_a_name_in_any_spelling_is_one(uses: dict[str, bool], how: str, tmp_path: Path) -> None:
    """Absolute, by way of the folder above or of a link, as a list of files or a pattern."""
    Path("link").symlink_to(Path("results/old"))
    named = candidates.NamedPaths()
    named._add_patterns("key", how.format(folder=Path.cwd()))
    assert named.key_naming(Path("results/old/corpus")) == "key"
    assert named.key_naming(Path("checkpoints/old")) is None and named.key_naming(Path(".cache/judge")) is None
    for other in ("", ".", "/", "hf://datasets/results/x", str(tmp_path / "results"), "results\0"):
        alone = candidates.NamedPaths()
        alone._add_patterns("key", other)
        assert alone.key_naming(Path("results/old/corpus")) is None, other


def test_checkpoints_of_a_learning_curve_stay(uses: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    config(evaluate={"curve": {"every": 20}}, pretrain={"train": {"keep_every": 20}})
    made(Project(configuration.validate(yaml.safe_load(Path("config.yaml").read_text()))), "pretrain.train")
    assert main(["clean", "checkpoints", "--yes"]) == 0
    assert sorted(path.name for path in Path("checkpoints", "1" * 16).glob("step-*")) == ["step-000020", "step-000030"]


def test_no_link_is_followed(uses: dict[str, bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    for name in (
        "results/old/url/select",
        "checkpoints",
        ".cache",
        "results/main/unused/finetune",
        ".snakemake/frozen/0123",
    ):
        path = Path(name)
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rename(outside / name)
        else:
            (outside / name).mkdir()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside / name)
    (outside / "results/old/url/select/manifest.json").write_text("{}")
    Path("results/old/finetune/train/link").symlink_to(outside)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    assert len(before) > 10
    assert main(["clean", "--yes"]) == 0
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
    assert "checkpoints is a link, which is not followed: nothing there was looked at" in capsys.readouterr().out
    assert not Path("results/old/finetune").exists()


def test_a_run_in_progress_refuses(uses: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(".snakemake/run.lock")
    with path.open("w") as handle:
        handle.write("4321")
        handle.flush()
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert main(["clean", "--yes"]) == 1
        assert "another run (process 4321) works in " in capsys.readouterr().err
        assert main(["clean", "-n"]) == 0
    Path(".snakemake/slurm-driver.json").write_text(json.dumps({"host": f"not-{socket.gethostname()}", "pid": 7}))
    assert main(["clean", "--yes"]) == 1
    assert "(process 7) works in" in capsys.readouterr().err
    assert all(Path(name).exists() for name in uses)


def test_a_config_that_cannot_be_read_removes_nothing(
    uses: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("config.yaml").write_text("models: [")
    assert main(["clean", "--yes"]) == 1
    assert all(Path(name).exists() for name in uses) and "config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", [5, 9])
def test_another_config_than_that_of_the_last_run_is_named(
    uses: dict[str, bool], epochs: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that one uses may be the run's: a script has to name the config."""
    project = Project(configuration.validate(yaml.safe_load(Path("config.yaml").read_text())))
    last = code_snapshot.write_config(project.variants["main"], project.held)
    assert main(["clean", "-n"]) == 0 and "another config" not in capsys.readouterr().out
    config(models={"sft": {**SFT, "epochs": epochs}})
    assert main(["clean", "--yes"]) == 1
    said = "the last run here had another config: models.sft.epochs differ"
    assert f"{said}. Name the run's config: --configfile FILE" in capsys.readouterr().err
    assert main(["clean", "-n"]) == 0 and said in capsys.readouterr().out
    assert last.exists() and all(Path(name).exists() for name in uses)
    assert main(["clean", "--yes", "--configfile", "config.yaml", "caches"]) == 0


def test_paths_that_leave_the_folder_are_none() -> None:
    assert not any(candidates.is_plain(Path(name)) for name in ("/etc", "../x", "results/../../x", ""))
    assert candidates.is_plain(Path("results/main"))
    assert command.KINDS == ("models", "checkpoints", "results", "caches")
