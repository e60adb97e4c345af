"""crawl2llm: from a web crawl to an evaluated language model."""

from snakemake.utils import min_version

min_version("9.0")


# The embedded default is a complete run, the demo. A run named by --configfile takes its place: it is not laid over it.
if not workflow.overwrite_configfiles:

    configfile: "config.yaml"


include: "rules/common.smk"


if CONTAINER:

    container: CONTAINER


include: "rules/crawl.smk"
include: "rules/ingest.smk"
include: "rules/language.smk"
include: "rules/heuristics.smk"
include: "rules/dedup.smk"
include: "rules/quality.smk"
include: "rules/corpus.smk"
include: "rules/tokenize.smk"
include: "rules/pretrain.smk"
include: "rules/finetune.smk"
include: "rules/evaluate.smk"
include: "rules/report.smk"


rule all:
    default_target: True
    input:
        every_variant("report.render"),
        every_variant("report.render", "report.html"),
