"""What each scorer of quality costs a document, beside its floor and datatrove's FastTextClassifierFilter, in the same run on one core.

    python -m benchmarks.quality --fasttext model.bin --label curated [--transformers FOLDER] [--kenlm FOLDER]

Input: the English C4 and HPLT samples of $CRAWL2LLM_DATA (else ../shared/data), or --input. --fasttext: a fastText classifier, such as a
run's results/main/quality/train/model.bin. --transformers: the folder of a sequence classifier. --kenlm: a folder of language models,
such as a run's results/main/quality/lm/models; needs `make kenlm-tools`. What is not given is left out. The peer, into an environment
of its own:

    python -m venv peer
    peer/bin/pip install "datatrove[processing]==0.10.1" fasttext-numpy2-wheel numpy pyyaml jsonschema xxhash zstandard pyarrow

With --peer PYTHON that interpreter measures datatrove on the same documents, in the same run. Seconds are CPU seconds, of KenLM's
program too.
Floors: fastText's own predict on lines that are made ready; the model of transformers on ids that are made ready, in the same batches;
KenLM's query on lines that are made ready.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.heuristics import SAMPLES, texts
from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT

PEER = """
import json, sys, time
from datatrove.data import Document
from datatrove.pipeline.filters import FastTextClassifierFilter
path, label, given, rounds = sys.argv[1:]
texts = [json.loads(line) for line in open(given, encoding="utf-8")]
peer = FastTextClassifierFilter(path, keep_labels=[(label, 0.5)])
peer.filter(Document(text=texts[0], id=""))
found = []
for _ in range(int(rounds)):
    start = time.process_time()
    kept = sum(peer.filter(Document(text=text, id="")) is True for text in texts)
    found.append(time.process_time() - start)
print(json.dumps({"seconds": found, "kept": kept}))
"""


def seconds() -> float:
    """CPU seconds of this process and of those that it waited for."""
    found = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def timed(run: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Median seconds, after one call that does not count."""
    run()
    found = []
    for _ in range(rounds):
        begun = seconds()
        run()
        found.append(seconds() - begun)
    return {"seconds": statistics.median(found)}


def fasttext(documents: list[str], path: str, label: str, rounds: int) -> dict[str, Any]:
    """Ours and the floor."""
    from crawl2llm.filters.quality.fasttext import Model, one_line
    from crawl2llm.filters.quality.settings import ScorerModel

    model = Model(ScorerModel(name="model", path=path, label=label))
    ready = [one_line(text) + "\n" for text in documents]
    predict = model.model.f.predict
    return {
        "ours": timed(lambda: [model(one_line(text)) for text in documents], rounds),
        "floor": timed(lambda: [predict(line, -1, 0.0, "strict") for line in ready], rounds),
    }


def transformers(documents: list[str], path: str, rounds: int) -> dict[str, Any]:
    """Ours and the floor, on a CPU with one thread."""
    import torch

    from crawl2llm.filters.quality.settings import ScorerModel, TransformersSettings
    from crawl2llm.filters.quality.transformers import Model, length_batches

    torch.set_num_threads(1)
    settings = TransformersSettings()
    model = Model(ScorerModel(name="model", path=path), settings, "cpu")
    limit, most = settings.max_characters, settings.batch_tokens
    ids = model.tokenizer([text[:limit] for text in documents], truncation=True, max_length=model.max_tokens)[
        "input_ids"
    ]
    batches = [
        model.tokenizer.pad({"input_ids": [ids[place] for place in places]}, return_tensors="pt")
        for places in length_batches([len(one) for one in ids], most)
    ]

    def floor() -> None:
        with torch.inference_mode():
            for batch in batches:
                model.model(**batch)

    return {
        "ours": timed(lambda: model([text[:limit] for text in documents], most), rounds),
        "floor": timed(floor, rounds),
        "parameters": sum(one.numel() for one in model.model.parameters()),
        "tokens": sum(map(len, ids)),
    }


def kenlm(documents: list[str], path: str, rounds: int) -> dict[str, Any]:
    """Ours and the floor, by the first model of the folder."""
    from crawl2llm.filters.quality import scorers, tools
    from crawl2llm.filters.quality.perplexity import Models, spelled_lines

    paths = dict([next(iter(scorers.language_model_files(Path(path)).items()))])
    language, models = next(iter(paths)), Models(paths)
    rows = [(str(number), language, text) for number, text in enumerate(documents)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ready = folder / "ready.txt"
        ready.write_text(
            "".join(f"{line}\n" for text in documents for line in spelled_lines(text, models.spellers[language])),
            encoding="utf-8",
        )
        return {
            "ours": timed(lambda: models.perplexity_by_id(rows, folder), rounds),
            "floor": timed(
                lambda: tools.run_program("query", "-v", "sentence", str(paths[language]), text=ready), rounds
            ),
        }


def peer(documents: list[str], python: str, path: str, label: str, rounds: int) -> dict[str, Any]:
    """datatrove's filter on the same documents."""
    with tempfile.TemporaryDirectory() as name:
        given, program = Path(name, "texts.jsonl"), Path(name, "peer.py")
        given.write_text("".join(json.dumps(text) + "\n" for text in documents), encoding="utf-8")
        program.write_text(PEER)
        command = [python, str(program), path, label.removeprefix("__label__"), str(given), str(rounds)]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": statistics.median(found["seconds"]), "kept": found["kept"]}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    samples = [data / "corpora" / f"{name}.jsonl.zst" for name in SAMPLES]
    parser.add_argument("--input", type=Path, nargs="+", default=samples, help="JSON Lines files of documents")
    parser.add_argument("--documents", type=int, default=1000, help="of these, at most")
    parser.add_argument("--fasttext")
    parser.add_argument("--label", default="curated")
    parser.add_argument("--transformers")
    parser.add_argument("--kenlm")
    parser.add_argument("--peer", help="Python of the environment of datatrove")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "quality.json")
    args = parser.parse_args(argv)
    documents = [text for path in args.input for text in texts(path) if text][: args.documents]
    found: dict[str, Any] = {}
    if args.fasttext:
        found["fasttext"] = fasttext(documents, args.fasttext, args.label, args.rounds)
        if args.peer:
            found["fasttext"]["datatrove"] = peer(documents, args.peer, args.fasttext, args.label, args.rounds)
    if args.transformers:
        found["transformers"] = transformers(documents, args.transformers, args.rounds)
    if args.kenlm:
        found["kenlm"] = kenlm(documents, args.kenlm, args.rounds)
    for part in found.values():
        for side in ("ours", "floor", "datatrove"):
            if side in part:
                part[side]["microseconds_a_document"] = round(part[side]["seconds"] / len(documents) * 1e6, 1)
    result = {
        "what": "scorers of quality on one core: CPU seconds of all documents, the median of the rounds",
        "documents": len(documents),
        "characters": sum(map(len, documents)),
        **found,
        "versions": versions("fasttext", "torch", "transformers"),
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
