"""compress.merge and mergekit on the same models: how far apart the results are, seconds and memory.

    pip install --no-deps --target peer mergekit==0.1.5
    python -m benchmarks.merging --peer peer          # writes benchmarks/results/merging.json

Rows of a size, type or method that a call leaves out stay in that file, which is written after each row.

Three Llamas with random weights, a base and two that are moved from it, tiny and of 98 million parameters, in fp32 and bf16. Each method
runs once with either program, a process of its own, one after the other. mergekit computes in fp32 (`dtype: float32`) as we do; of tiny
ones in bf16 also in bf16. Of equal differences from the base TIES keeps some: mergekit those that its sort, which is not stable, has
first, ours those that come first in the tensor; `stable` rows have mergekit's sort made stable. How far apart results are is in units in
the last place of their type: of the larger of the two numbers, and of the largest that went in at that place, since the sum of two
numbers that cancel has fewer places that count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import safe_open
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.machine import processor, run, versions
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT

RESULT = ROOT / "benchmarks/results/merging.json"
PEER = "0.1.5"
SIZES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 1024},
    "98M": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "vocab_size": 16384},
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
STABLE = "import functools, torch; torch.argsort = functools.partial(torch.argsort, stable=True); "
PROGRAM = "from mergekit.scripts.run_yaml import main; main()"
PLACES = {torch.float32: 24, torch.bfloat16: 8}  # of a number, the implicit one among them
WEIGHTS = {"first": 0.6, "second": 0.9}
METHODS: dict[str, dict[str, Any]] = {  # the keys of compress.merge, of a model made from `first`
    "average": {"with": ["second"], "weights": list(WEIGHTS.values())},
    "slerp": {"with": ["second"], "t": 0.3},
    "task_arithmetic": {"with": ["second"], "over": "base", "weights": list(WEIGHTS.values())},
    "ties": {"with": ["second"], "over": "base", "weights": list(WEIGHTS.values()), "density": 0.3},
}


def write_models(folder: Path, shape: dict[str, int], kind: torch.dtype) -> dict[str, Path]:
    """The manifests of three models below `folder`, by name."""
    words = {f"w{number}": number for number in range(shape["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "w0")), eos_token="w0")  # noqa: S106
    config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True)
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(kind)
    manifests = {}
    for name in ("base", *WEIGHTS):
        place = folder / ("pretrain" if name == "base" else name)
        for value in model.parameters() if name != "base" else ():
            value.data.add_(torch.randn_like(value), alpha=0.005)
        model.save_pretrained(place / "model")
        tokenizer.save_pretrained(place / "model")
        manifests[name] = folder / f"{name}.manifest.json" if name != "base" else place / "manifest.json"
        Manifest("finetune.train", "0" * 16).write(manifests[name], sorted((place / "model").iterdir()))
    return manifests


def merge_ours(folder: Path, manifests: dict[str, Path], method: str) -> tuple[dict[str, float], Path]:
    """(measures, folder of the model) of compress.merge."""
    keys = METHODS[method]
    entries = {name: {"from": "base", "step": "finetune.train"} for name in WEIGHTS}
    entries["soup"] = {"from": "first", "step": "compress.merge", "method": method, **keys}
    (folder / "soup.json").write_text(json.dumps({"models": entries}))
    others = [*keys["with"], *filter(None, [keys.get("over")])]
    words = [sys.executable, "-m", "crawl2llm.stages.compress.merge", "--config", str(folder / "soup.json")]
    words += ["--model", str(manifests["first"]), "--others", *(str(manifests[name]) for name in others)]
    out = folder / f"{method}.out"
    return run([*words, "--manifest", str(out / "soup.manifest.json")], ROOT)[0], out / "soup/model"


def merge_theirs(
    folder: Path, manifests: dict[str, Path], method: str, arithmetic: str, written: str, stable: bool, peer: Path
) -> tuple[dict[str, float], Path]:
    """The same of mergekit. arithmetic, written: types as it calls them. stable: its sort is."""
    keys = METHODS[method]
    place = {name: str(path.parent / ("" if name == "base" else name) / "model") for name, path in manifests.items()}
    density = {"density": keys["density"]} if "density" in keys else {}
    tree: dict[str, Any] = {
        "merge_method": {"average": "linear"}.get(method, method),
        "models": [{"model": place[name], "parameters": {"weight": WEIGHTS[name], **density}} for name in WEIGHTS],
        "dtype": arithmetic,
        "out_dtype": written,
    }
    if method == "slerp":
        tree |= {"models": [{"model": place[name]} for name in WEIGHTS], "parameters": {"t": keys["t"]}}
    if method != "average":
        tree["base_model"] = place[keys.get("over", "first")]
    (folder / "theirs.yaml").write_text(yaml.safe_dump(tree))
    out = folder / f"{method}.theirs"
    shutil.rmtree(out, ignore_errors=True)
    path = os.pathsep.join(filter(None, [str(peer), os.environ.get("PYTHONPATH")]))
    words = [sys.executable, "-c", STABLE * stable + PROGRAM, str(folder / "theirs.yaml"), str(out)]
    return run(words, ROOT, PYTHONPATH=path)[0], out


def difference(ours: Path, theirs: Path, sources: list[Path]) -> dict[str, float]:
    """How far two models are apart: see the module. sources: the models that went in."""
    place = {name: file for file in theirs.glob("*.safetensors") for name in names_in(file)}
    result_units = input_units = differing = total = 0.0
    for file in sorted(ours.glob("*.safetensors")):
        for name in names_in(file):
            own, other = tensor_in(file, name), tensor_in(place[name], name)
            if own.dtype != other.dtype:
                raise RuntimeError(f"{name} is {own.dtype} and {other.dtype}")
            inputs = torch.stack([tensor_in(source / file.name, name).double().abs() for source in sources]).amax(0)
            apart, places = (own.double() - other.double()).abs(), PLACES[own.dtype]
            larger = torch.maximum(own.double().abs(), other.double().abs())
            result_units = max(result_units, float((apart / unit(larger, places)).max()))
            input_units = max(input_units, float((apart / unit(torch.maximum(inputs, larger), places)).max()))
            differing, total = differing + int((apart > 0).sum()), total + apart.numel()
    return {
        "units_of_result": result_units,
        "units_of_inputs": round(input_units, 3),
        "differing": round(differing / total, 6),
    }


def unit(values: torch.Tensor, places: int) -> torch.Tensor:
    """The unit in the last place of numbers with so many binary places."""
    return torch.exp2(torch.floor(torch.log2(values.clamp_min(2.0**-126))) - (places - 1))


def names_in(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as tensors:
        return list(tensors.keys())


def tensor_in(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, framework="pt") as tensors:
        return tensors.get_tensor(name)


def rows_of(size: str, kind: str, methods: list[str], peer: Path) -> Iterator[dict[str, Any]]:
    """A row for each method, and more for mergekit's arithmetic in bf16 and its stable sort."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        manifests = write_models(folder, SIZES[size], TYPES[kind])
        sources = [path.parent / ("" if name == "base" else name) / "model" for name, path in manifests.items()]
        written = str(TYPES[kind]).removeprefix("torch.")
        for method in methods:
            measures, ours = merge_ours(folder, manifests, method)
            ways = [("float32", False), *([(written, False)] if (size, kind) == ("tiny", "bf16") else [])]
            ways += [("float32", True)] if method == "ties" else []
            for arithmetic, stable in ways:
                peer_measures, theirs = merge_theirs(folder, manifests, method, arithmetic, written, stable, peer)
                row = {"size": size, "type": kind, "method": method, "mergekit": arithmetic, "stable": stable}
                row |= difference(ours, theirs, sources)
                row |= {"ours": rounded(measures), "theirs": rounded(peer_measures)}
                print(json.dumps(row), flush=True)
                yield row
            shutil.rmtree(ours.parent.parent)


def rounded(measures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in measures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, help="the folder that mergekit was installed into")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    args = parser.parse_args()
    peer = args.peer.resolve()
    if not (peer / f"mergekit-{PEER}.dist-info").is_dir():
        parser.error(
            f"--peer {args.peer} has no mergekit {PEER}: pip install --no-deps --target {args.peer} mergekit=={PEER}"
        )
    facts = {"processor": processor(), "cpus": os.cpu_count(), "mergekit": PEER}
    facts["versions"] = versions("torch", "transformers", "safetensors")
    before = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
    measured = list(product(args.sizes, args.types, args.methods))
    rows = [row for row in before if (row["size"], row["type"], row["method"]) not in measured]
    for size, kind in product(args.sizes, args.types):
        for row in rows_of(size, kind, args.methods, peer):
            rows.append(row)
            RESULT.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
