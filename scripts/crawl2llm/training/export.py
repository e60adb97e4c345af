"""Export a checkpoint of pretrain.train or finetune.train as a model: safetensors, config.json and tokenizer, as model/ of its result.

Without a checkpoint it lists those that are in checkpoints/: model, step, time and size.

At any time, also while the training goes on, from a checkpoint of either engine under any ZeRO stage, on one machine without a GPU. The
weights are the fp32 ones that the optimizer moves, or their EMA (`ema`), saved as `save_dtype` of the training says. Memory: the model
in fp32.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.core import atomic_folder
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint, listing

DTYPES = ("bf16", "fp32")


def export_checkpoint(source: Path, target: Path, dtype: str | None) -> list[Path]:
    """Write the model of the checkpoint `source` into the folder `target`, which must not be there; its files.

    Raises InputError for a folder that is not a complete checkpoint, has no model/ or a file that cannot be read.
    """
    import torch
    from transformers import AutoConfig

    from crawl2llm.training import checkpoint_integrity, engine, initial, model, routers
    from crawl2llm.training.ema import EMA
    from crawl2llm.training.engines.saved_parameters import saved_parameters

    if target.exists():
        raise InputError(f"{target} exists already: name a folder that does not")
    if not (source / checkpoint.FACTS).is_file() or (source_checkpoint := checkpoint.read(source)) is None:
        complete_paths = sorted(str(path.parent) for path in source.parent.glob(f"step-*/{checkpoint.FACTS}"))
        raise InputError(
            f"{source} is not a complete checkpoint"
            + (
                f"; complete are {', '.join(complete_paths)}"
                if complete_paths
                else ": name one such as checkpoints/<run>/step-000100"
            )
        )
    if not (folder := source / model.FOLDER).is_dir():
        raise InputError(f"{source} has no {model.FOLDER}/: it was written by an earlier version; resume its run first")
    if why := checkpoint_integrity.damage_text(source) or next(
        atomic_folder.checksum_problems(source, atomic_folder.read_sealed_digests(source, checkpoint.FACTS)), ""
    ):
        raise InputError(f"{why}: export another checkpoint")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    empty_model = initial.empty_model(config)
    values = routers.trained_values(empty_model)
    shapes = {name: value.shape for name, value in values.items()}
    names = {str(kind).removeprefix("torch."): name for name, kind in model.DTYPES.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as place:
        parameters = saved_parameters(source_checkpoint, shapes, Path(place))
        # Those of a checkpoint that has none are zeros (engines/torch_files.py).
        weights = {name: torch.zeros(shapes[name]) for name in shapes if name.endswith(routers.BIAS)}
        weights |= {
            name: kinds.get(EMA, kinds[engine.WEIGHT]).float().reshape(shapes[name]) for name, kinds in parameters
        }
    companions = [path for path in folder.iterdir() if path.name in model.COMPANIONS]
    return model.export(weights, config, dtype or names[str(config.dtype).removeprefix("torch.")], companions, target)


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm export", __doc__, "checkpoints/3f2a…/step-000800 exported/step-000800")
    parser.add_argument(
        "checkpoint", nargs="?", type=Path, help="a folder checkpoints/<run>/step-<step>; without: list them"
    )
    parser.add_argument("out", nargs="?", type=Path, help="the folder to write, which is not there yet")
    parser.add_argument("--dtype", choices=DTYPES, help="type of the weights (default: save_dtype of the training)")
    args = parser.parse_args(argv)
    if args.checkpoint is None:
        print_line("\n".join(listing.table_lines(Path("checkpoints"))))
        return 0
    if args.out is None:
        parser.error("name the folder to write after the checkpoint")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed's import, also by transformers, warns without it
    try:
        files = export_checkpoint(args.checkpoint, args.out, args.dtype)
    except (InputError, OSError) as error:
        return print_error(str(error))
    print_line(f"{args.out}: {', '.join(path.name for path in files)}")
    print_line(f"to load it: transformers.AutoModelForCausalLM.from_pretrained({str(args.out)!r})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
