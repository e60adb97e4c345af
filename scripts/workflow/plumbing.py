"""Which modules decide no byte of a result, and why. An edit of these reruns nothing; every other module counts for the steps
that import it.

These modules are not trusted blindly: settings are in the fingerprint with their values, inputs with their digests, and files with
their checksums. Where an edit of one of these modules does change what a step writes, raise VERSION:
every step then runs again.
"""

from __future__ import annotations

VERSION = 1

# A name that ends with / is a folder with all that is in it.
PLUMBING = {
    "scripts/align/checks.py": "refuses settings that cannot work together",
    "scripts/compress/checks.py": "refuses settings that cannot work together",
    "scripts/compress/gguf_tools.py": "compiles llama.cpp; its version is in the record of what it makes",
    "scripts/crawl2llm.py": "the command for people",
    "scripts/decontaminate/command.py": "searches a corpus of somebody else's for a person",
    "scripts/decontaminate/corpora.py": "reads and writes such a corpus",
    "scripts/evaluate/speed.py": "measures tokens a second and memory, in a file that no manifest lists",
    "scripts/ingest/native/setup.py": "builds the compiled part, whose source is in the fingerprint",
    "scripts/language/labels.py": "refuses languages that the model never finds",
    "scripts/models/registry.py": "which models there are; settings and parents are in their fingerprints",
    "scripts/new/": "writes a config for people",
    "scripts/picture/": "draws a plan",
    "scripts/plan/": "says what would run, why, and how long it may take",
    "scripts/pretrain/checks.py": "refuses settings that cannot work together",
    "scripts/pretrain/damage.py": "finds checkpoints that cannot be read: a training goes on from the one before, to the same bytes",
    "scripts/pretrain/expected.py": "says what `auto` will be",
    "scripts/pretrain/gpus.py": "memory and peak of GPUs, for what a plan says of a machine",
    "scripts/pretrain/hours.py": "what a plan says of hours and price; in the record, not in the manifest",
    "scripts/pretrain/listing.py": "lists checkpoints for a person",
    "scripts/pretrain/nvml.py": "reads what a GPU says of itself",
    "scripts/pretrain/origin.py": "refuses to start from another model, as far as small files tell",
    "scripts/pretrain/placed.py": "what a plan says of a machine: memory, disk; in the record, not in the manifest",
    "scripts/pretrain/prometheus.py": "shows metrics while a training runs",
    "scripts/pretrain/room.py": "refuses to start where memory is too small, and says what to change where it runs out",
    "scripts/pretrain/progress.py": "shows the pace of a training: its log, and metrics.jsonl, which no manifest lists",
    "scripts/pretrain/vitals.py": "measures time and memory of each process",
    "scripts/quality/kenlm_tools.py": "compiles KenLM; its version is in the code of the steps that call it",
    "scripts/report/now.py": "renders the page for a person beside a run, not for the step",
    "scripts/report/state.py": "finds what a run has done so far, for that page",
    "scripts/report/summary.py": "prints the last lines of a run",
    "scripts/serve/": "lets people talk to models",
    "scripts/slurm/": "talks to SLURM",
    "scripts/synthesize/checks.py": "refuses settings that cannot work together",
    "scripts/tokenize/nanotron.py": "links token files for another program",
    "scripts/tools/": "writes the pages that are generated",
    "scripts/training/advice.py": "says what to change where memory is too small",
    "scripts/training/alive.py": "says where a process of a training is",
    "scripts/training/estimate/": "estimates memory",
    "scripts/training/heap.py": "says where memory comes from",
    "scripts/training/hung.py": "says which process of a training hangs, and where",
    "scripts/training/program.py": "runs a training's program in each of its processes",
    "scripts/training/runs.py": "names the folders of checkpoints, and says which code took part",
    "scripts/training/launch.py": "starts the processes of a training",
    "scripts/training/machine.py": "says what a training ran on",
    "scripts/training/memory.py": "refuses to start where memory is too small",
    "scripts/training/processes.py": "watches the processes of a training and passes signals on",
    "scripts/training/sealed.py": "seals checkpoints and compares the seal",
    "scripts/pretrain/staging.py": "copies token files to the node's disk, and compares their checksums as it does",
    "scripts/watch/": "shows a run while it works",
    "scripts/workflow/accept.py": "marks results as of today's code, where a person says so",
    "scripts/workflow/cache.py": "remembers hashes of files by path, size and time",
    "scripts/workflow/cli.py": "the command line of every step: options, errors, whether a task is done already",
    "scripts/workflow/config.py": "reads and checks the config; the values it finds are in the fingerprint",
    "scripts/workflow/console.py": "messages and progress",
    "scripts/workflow/contents.py": "hashes files that keys name; the hashes are in the fingerprint",
    "scripts/workflow/costs.py": "keeps the benchmark file of the start that did the work",
    "scripts/workflow/driver.py": "ends a task whose Snakemake is gone",
    "scripts/workflow/ended.py": "says which process a signal ended",
    "scripts/workflow/engine.py": "tells Snakemake what is up to date",
    "scripts/workflow/errors.py": "the error of input that a person can mend",
    "scripts/workflow/fingerprint.py": "finds what decides bytes; what it finds is compared, not how",
    "scripts/workflow/freshness.py": "compares manifests with what is expected now",
    "scripts/workflow/frozen.py": "copies code and config for a run",
    "scripts/workflow/inputs.py": "compares files with their manifests",
    "scripts/workflow/lean.py": "leaves out a library that no value comes from",
    "scripts/workflow/leftovers.py": "removes results of shards and models that the config no longer has",
    "scripts/workflow/lock.py": "lets one run at a time into a folder",
    "scripts/workflow/manifest.py": "writes and reads manifests; a result's files have their own checksums",
    "scripts/workflow/options.py": "placement keys as options of a command line",
    "scripts/workflow/plumbing.py": "this list; VERSION is in every fingerprint",
    "scripts/workflow/processors.py": "says how many cores there are",
    "scripts/workflow/pool.py": "starts a process for each shard of a task",
    "scripts/workflow/project.py": "says where each manifest lies and what is expected of it",
    "scripts/workflow/ranges.py": "writes many inputs as one entry; none is left out",
    "scripts/workflow/readable.py": "says where a config file is broken",
    "scripts/workflow/record.py": "writes what decides no byte: host, versions, seconds",
    "scripts/workflow/replaced.py": "names the source files that differ",
    "scripts/workflow/scalars.py": "explains what YAML made of a value",
    "scripts/workflow/shortcuts.py": "lets Snakemake plan the same in less time",
    "scripts/workflow/start.py": "what happens when a run starts",
    "scripts/workflow/steps.py": "the table of steps; what a step reads from is in its fingerprint",
    "scripts/workflow/trees.py": "nested mappings; what the config holds is in the fingerprint",
    "scripts/workflow/verify.py": "compares results with their manifests",
}


def is_plumbing(path: str) -> bool:
    """Whether a module, by its path below the project's root, decides no byte."""
    return path in PLUMBING or any(name.endswith("/") and path.startswith(name) for name in PLUMBING)
