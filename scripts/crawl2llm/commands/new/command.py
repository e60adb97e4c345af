"""Look at a sample of your files, of a data set, or of Common Crawl, and write a commented config for it, with explicit sizes.

It says what was found: languages, documents, tokens, the model that fits them, and what a run would take here and on one
node of eight H100. All of that is estimated from the sample.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crawl2llm.chain import config as configuration
from crawl2llm.chain.command_line import command_parser, report_errors
from crawl2llm.commands.new.estimate import DATA_FACTOR, NODE_CORES, NODE_GPUS, Estimate, estimate_run
from crawl2llm.commands.new.places import LENGTHS, Source, SourceOptions, find_sources
from crawl2llm.commands.new.sample import Sample, read_sample
from crawl2llm.core.console import format_duration, format_quantity, log, print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import write_atomically
from crawl2llm.core.root import ROOT
from crawl2llm.filters.language.known_labels import check_names
from crawl2llm.filters.quality.settings import SelectSettings
from crawl2llm.stages.compress import gguf_support
from crawl2llm.stages.ingest.extract import DAMAGE
from crawl2llm.stages.report.cautions import LEAST_HELD_OUT
from crawl2llm.stages.tokenize.settings import TrainSettings
from crawl2llm.training.cost_estimate import gpu_settings
from crawl2llm.training.pretraining_settings import ResolvedSettings

LEAST_SHARE = 0.1  # least share of the text for a language to be kept without being named
SHARDS = 64


def language_shares(samples: list[tuple[Source, Sample]]) -> dict[str, float]:
    """The share of each language in the text, the largest first; `unsure` is what is below the threshold."""
    total: dict[str, float] = {}
    for source, sample in samples:
        for name, size in sample.text_bytes.items():
            total[name] = total.get(name, 0.0) + size * source.bytes / max(sample.bytes, 1)
    text_size = sum(total.values()) or 1.0
    return {name: size / text_size for name, size in sorted(total.items(), key=lambda item: (-item[1], item[0]))}


def languages_to_keep(shares: dict[str, float], requested: list[str], surviving: Iterable[str]) -> list[str]:
    """The languages to keep: those that are asked for, or those with a good share of the text.

    surviving: those of which the filters left something in the sample; others are chosen only where they are asked for.

    One that the sample lacks is left out with a warning. Raises InputError if it lacks all.
    """
    recognised = {name: share for name, share in shares.items() if name not in ("unsure", "und")}
    if not recognised:
        raise InputError("the sample held no text in a language that was recognised: is this a crawl of pages or text?")
    shares_text = ", ".join(f"{other} {share:.0%}" for other, share in list(shares.items())[:8])
    for name in [name for name in requested if name not in recognised]:
        log.warning("--languages %s: the sample held no text of it, so it is left out; it held %s", name, shares_text)
    if requested and not (requested := [name for name in requested if name in recognised]):
        raise InputError(f"--languages: the sample held no text of any of them; it held {shares_text}")
    candidates = [name for name in recognised if name in set(surviving)] or list(recognised)
    return requested or [name for name in candidates if recognised[name] >= LEAST_SHARE] or candidates[:1]


def run_command(config: Path) -> str:
    """The command that runs a config from the working directory, to which its paths are relative; it works as typed.

    Where the project's programs are not those on the PATH, as in an environment that is not activated, it names their folder first.
    """
    programs = Path(sys.executable).parent
    snakemake = shutil.which("snakemake")
    is_on_path = snakemake and Path(snakemake).parent.samefile(programs)
    path = "" if is_on_path else f'PATH={shlex.quote(str(programs))}:"$PATH" '
    place = "" if Path("Snakefile").exists() else f"--snakefile {shlex.quote(str(ROOT / 'Snakefile'))} "
    profile = shlex.quote(str(ROOT / "profiles/local")) if place else "profiles/local"
    return f"{path}snakemake {place}--profile {profile} --configfile {shlex.quote(str(config))}"


def yaml_text(value: Any) -> str:
    """A value as YAML on one line; texts are quoted, so that `no` stays a language."""
    return json.dumps(value, ensure_ascii=False)


def source_comments(source: Source) -> list[str]:
    """What else there is to say of a source, as comments."""
    out = []
    if preset := source.keys.get("preset"):
        out.append(f"#   Its columns are those of {preset}, so `preset` says where text, address and so on are.")
    if "text_key" in source.keys:
        out.append(f"#   The text is under {source.keys['text_key']}.")
    if source.follows_links:
        out.append("#   Symbolic links take files out of the folder of their pattern, so `follow_links` allows it.")
    if source.unknown_lengths == len(source.files):
        out.append(
            "#   The server does not tell their lengths: each counts as what was read of it, and estimates are too low."
        )
    elif source.unknown_lengths:
        out.append(
            f"#   {format_quantity(source.unknown_lengths, 'length is', 'lengths are')} not known (at most {LENGTHS:,} are asked for): "
            "each counts as the mean of the others."
        )
    if source.is_remote:
        out.append("#   They come over the network, in each run that reads them; the times below are without that.")
    return out


def digits_note(digits: int) -> str:
    """What a value of tokenize.train.digits means for an export, as a comment: nobody should learn it after a training."""
    allowed = " or ".join(map(str, gguf_support.PRE))
    split = {0: "not split", 1: "split into single digits"}.get(digits, f"split into groups of up to {digits} digits")
    if digits in gguf_support.PRE:
        return f"# Numbers are {split}, which llama.cpp knows: an export as GGUF is possible."
    return (
        f"# Numbers are {split}. llama.cpp knows {allowed} alone: for an export as GGUF (llama.cpp, "
        f"Ollama)\n# set tokenize.train.digits to {allowed} before the training, or give --digits; afterwards it is too late."
    )


def held_out_note(estimate: Estimate) -> list[str]:
    """How many documents are held out, and that they are few if they are, as comments."""
    held_out = round(estimate.documents * estimate.validation_fraction)
    comment = f"# About {format_quantity(held_out, 'document is', 'documents are')} held out from training, to measure the models on."
    if held_out >= LEAST_HELD_OUT:
        return [comment]
    return [
        comment,
        f"# So FEW (less than {LEAST_HELD_OUT}) that what is measured on them may be far off; a corpus of this size makes a weak model.",
        "# More documents help most; a larger validation_fraction takes them from training.",
    ]


def empty_corpus_text(samples: list[tuple[Source, Sample]], patterns: list[str], languages: list[str]) -> str:
    """Why no config is written for a sample of which the filters leave no document."""
    documents = sum(sample.documents.total() for _, sample in samples)
    shares_text = ", ".join(f"{name} {share:.0%}" for name, share in list(language_shares(samples).items())[:8])
    return (
        f"the sample of {' '.join(patterns)} has {format_quantity(documents, 'document')} with text, and the filters language (for "
        f"{', '.join(languages)}) and heuristics leave none of them: the corpus would be empty. Languages, by text: {shares_text}. "
        "Give more or other files, or other languages (--languages); for text that the heuristics are not made for, such as code, start "
        "from a config in configs/, with other `filters`"
    )


def speed_lines(train: ResolvedSettings, gpus: int) -> list[str]:
    """What pretrain.train and finetune.train compute with, on a CPU or on so many GPUs of a node, as lines of the config."""
    if not gpus:
        return [f"    precision: {train.precision} # for GPUs: `crawl2llm new --gpus N`"]
    keys = gpu_settings(train.global_batch_tokens, train.model.context, gpus)
    return [
        *[f"    {key}: {yaml_text(value)}" for key, value in keys.items()],
        "",
        "finetune:",
        "  train:",
        "    engine: torch",
        "    precision: bf16",
    ]


def sample_comments(source: Source, sample: Sample) -> list[str]:
    """What a source is and what a sample of it held, as comments."""
    rejected = sum(sample.rejected.values())
    # All damage, and of the rest what is most common, four in all or more.
    rejections = sorted(sample.rejected.most_common(), key=lambda each: each[0] not in DAMAGE)
    rejections = rejections[: max(4, sum(why in DAMAGE for why, _ in rejections))]
    if other_count := rejected - sum(number for _, number in rejections):
        rejections.append(("others", other_count))
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in rejections)
    return [
        f"# {', '.join(source.patterns)}: {format_quantity(len(source.files), 'file')}, {source.bytes / 1e6:,.1f} MB of kind "
        f"{source.kind}.",
        *source_comments(source),
        f"#   Sample: {format_quantity(sample.files, 'file')}, {sample.bytes / 1e6:,.1f} MB: "
        f"{format_quantity(sample.documents.total(), 'document')} with text and {format_quantity(rejected, 'record')} without"
        + (f" ({reasons})" if reasons else "")
        + ".",
    ]


def estimate_comments(
    samples: list[tuple[Source, Sample]], estimate: Estimate, trained: int, digits: int, gpus: int
) -> list[str]:
    """What a run would have, make and take, as comments. trained: tokens. digits: of tokenize.train. gpus: as of `config_text`."""
    train, keep_fraction = estimate.settings, SelectSettings().keep_fraction
    languages_text = ", ".join(
        f"{language} {share:.1%}" for language, share in list(language_shares(samples).items())[:10]
    )
    return [
        f"# Languages, by text: {languages_text}.",
        *[
            f"# The filters left NOTHING of {language} in the sample: a model of it needs other texts or other filters."
            for language in estimate.emptied_languages
        ],
        "# Estimates, if the rest is as the sample, after language and heuristics:",
        f"#   {format_quantity(estimate.documents, 'document')}, {estimate.text_bytes / 1e6:,.1f} MB of text, {estimate.tokens:,} training "
        "tokens.",
        f"#   The model that fits: {estimate.parameters:,} parameters, {trained:,} tokens trained on "
        f"({trained / max(estimate.tokens, 1):.1f} passes).",
        "#   Assumed, not measured: all of these documents stay in the corpus. Duplicates are dropped as well, and with a curated",
        f"#   source the quality classifier keeps {keep_fraction:.0%} of the others (quality.select.keep_fraction): the corpus is smaller "
        "then.",
        f"#   Here: {format_duration(estimate.data_here)} for the data on all cores "
        f"({format_duration(estimate.starts_here)} of it to start {format_quantity(estimate.tasks, 'task')}), "
        f"{format_duration(estimate.train_here)} for pretraining",
        f"#   on {format_quantity(train.threads, 'thread')}, by the sample's processor time and a few steps timed here, as if nothing "
        "else ran. Assumed: all data steps",
        f"#   take {DATA_FACTOR:.0f} times what reading, language and heuristics take. Fine-tuning, evaluation and report come on top",
        "#   (1.5 minutes on 2 cores for a model of 0.6 million parameters, measured with `make demo`).",
        f"#   One node of {gpus or NODE_GPUS} × H100: {format_duration(estimate.data_node)} for the data on {NODE_CORES} cores, "
        f"{format_duration(estimate.train_node)} for pretraining",
        "#   (predicted for the settings of `crawl2llm new --gpus`, by a count of their operations; not measured).",
        *digits_note(digits).splitlines(),
        *held_out_note(estimate),
    ]


def config_text(
    samples: list[tuple[Source, Sample]],
    languages: list[str],
    estimate: Estimate,
    name: str,
    shards: int,
    digits: int,
    gpus: int = 0,
) -> str:
    """The config as YAML with comments. gpus: of a node, on which it is to train; 0: it trains on a CPU."""
    train, model = estimate.settings, estimate.settings.model
    assert train.steps is not None  # as epochs are auto
    trained = train.steps * train.global_batch_tokens
    lines = [
        f"# Written by `crawl2llm new` after a look at a sample. Run it: {run_command(Path(name))}",
        "# `crawl2llm keys WORD` finds a key. What is not set here has its default.",
        "#",
        *[line for source, sample in samples for line in sample_comments(source, sample)],
        *estimate_comments(samples, estimate, trained, digits, gpus),
        "",
        "ingest:",
        "  extract:",
        f"    shards: {shards} # tasks that the files are spread over",
        "    sources:",
        *[f"      - {yaml_text(source.config_entry())}" for source, _ in samples],
        "      # What the quality classifier learns to prefer, if you have it:",
        '      # - {"name": "books", "kind": "text", "curated": true, "paths": ["books/*.txt"]}',
        "",
        "language:",
        "  select:",
        f"    languages: {yaml_text(languages)}",
        "",
        "corpus:",
        "  split:",
        f"    validation_fraction: {estimate.validation_fraction:g} # of the documents, held out from training",
        "",
        "tokenize:",
        "  train:",
        f"    vocabulary: {estimate.vocabulary}",
        f"    digits: {digits}",
        "",
        "pretrain:",
        "  train:",
        "    model:",
        *[
            f"      {key}: {getattr(model, key)}"
            for key in ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "context")
        ],
        f"    tokens: {trained}",
        f"    global_batch_tokens: {train.global_batch_tokens}",
        f"    learning_rate: {train.learning_rate}",
        f"    warmup: {train.warmup}",
        f"    validation_tokens: {train.validation_tokens}",
        *speed_lines(train, gpus),
        "",
    ]
    return "\n".join(lines)


def positive_number(text: str) -> int:
    """A number from 1, as an option has it."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def file_system_options(text: str) -> dict[str, Any]:
    """The options of a file system, in JSON."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'not a mapping in JSON, as {{"anon": true}}: {text}')
    return value


def argument_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_parser(
        "crawl2llm new",
        __doc__,
        "mine.yaml --from 'crawl/*.warc.gz' --languages en de\n"
        "  crawl2llm new mine.yaml --from 'hf://datasets/HuggingFaceFW/fineweb/sample/10BT/*.parquet'\n"
        "  crawl2llm new mine.yaml --from CC-MAIN-2026-08 --files 100 --format wet",
        allow_abbrev=False,
    )
    parser.add_argument("config", type=Path, help="the file to write")
    parser.add_argument(
        "--from",
        dest="patterns",
        required=True,
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="files of WARC, WET, ARC, text, JSON Lines or Parquet: paths, globs, URLs (https, s3, hf; also globs, "
        "at a web server if it lists its files), @list.txt of either; or a crawl of Common Crawl, such as CC-MAIN-2026-08",
    )
    parser.add_argument(
        "--files", type=positive_number, metavar="N", help="of a crawl: so many of its files, chosen by a hash"
    )
    parser.add_argument("--format", choices=["warc", "wet", "arc"], default="", help="of a crawl; default: warc")
    parser.add_argument(
        "--base",
        default="",
        metavar="PLACE",
        help="of a crawl: the URL or folder of a mirror; default: https://data.commoncrawl.org/",
    )
    parser.add_argument(
        "--text-key",
        default="",
        metavar="COLUMN",
        help="of JSON Lines and Parquet: the column of the text, if it is not found",
    )
    parser.add_argument(
        "--options",
        type=file_system_options,
        default={},
        metavar="JSON",
        help="""of remote files: options of fsspec, as '{"anon": true}'; secrets are named, as {env:NAME}""",
    )
    parser.add_argument(
        "--languages",
        nargs="+",
        default=[],
        metavar="CODE",
        help="languages to keep; default: those with 10 %% of the text",
    )
    parser.add_argument(
        "--digits",
        type=int,
        choices=range(10),
        default=TrainSettings().digits,
        metavar="N",
        help="split numbers into groups of up to so many digits (0: not at all); for an export as GGUF "
        f"{' or '.join(map(str, gguf_support.PRE))} (default: %(default)s)",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        choices=[0, 1, 2, 4, 8],
        default=0,
        help="write settings that are fast on so many GPUs of a node (docs/engines.md); 0: for a CPU",
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    return parser


@report_errors
def main(argv: list[str] | None = None) -> int:
    args = argument_parser().parse_args(argv)
    set_up_logging("new")
    if args.config.exists() and not args.force:
        raise InputError(f"{args.config} exists already; give another name, or --force to overwrite it")
    if not args.config.parent.is_dir():
        raise InputError(f"{args.config}: there is no folder {args.config.parent}")
    check_names(args.languages, "--languages")
    request = SourceOptions(args.files, args.format, args.base, args.options, args.text_key)
    samples = [(source, read_sample(source)) for source in find_sources(args.patterns, request)]
    if not any(sample.documents.total() for _, sample in samples):
        reasons = ", ".join(f"{reason} {n:,}" for _, sample in samples for reason, n in sample.rejected.most_common(4))
        example = next((f"; the first: {sample.example}" for _, sample in samples if sample.example), "")
        raise InputError(
            f"the sample of {' '.join(args.patterns)} held no document with text: {reasons or 'nothing'}{example}"
        )
    surviving = [name for _, sample in samples for name, number in sample.kept_documents.items() if number]
    languages = languages_to_keep(language_shares(samples), args.languages, surviving)
    if not any(sample.kept_documents[name] for _, sample in samples for name in languages):
        raise InputError(empty_corpus_text(samples, args.patterns, languages))
    shards = max(1, min(SHARDS, sum(len(source.files) for source, _ in samples)))
    estimate = estimate_run(samples, languages, shards, args.gpus)
    content = config_text(samples, languages, estimate, str(args.config), shards, args.digits, args.gpus)
    import yaml

    configuration.validate(yaml.safe_load(content), source=str(args.config))
    write_atomically(args.config, content)
    comments = [line.removeprefix("#").removeprefix(" ") for line in content.splitlines()[3:] if line.startswith("#")]
    print_line("\n".join(comments))
    print_line(f"\nwrote {args.config}; look at it, then: {run_command(args.config)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
