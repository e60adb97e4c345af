"""crawl2llm: from a web crawl to an evaluated language model."""

from snakemake.utils import min_version

min_version("9.0")


include: "rules/common.smk"  # config.yaml, or what --configfile names


if CONTAINER:

    container: CONTAINER


include: "rules/crawl.smk"
include: "rules/synthesize.smk"
include: "rules/ingest.smk"
# The filters; the config's `filters` says which run, and in what order
include: "rules/filters.smk"
include: "rules/filters/language.smk"
include: "rules/filters/heuristics.smk"
include: "rules/filters/boilerplate.smk"
include: "rules/filters/dedup.smk"
include: "rules/filters/paragraphs.smk"
include: "rules/filters/substrings.smk"
include: "rules/filters/quality.smk"
include: "rules/filters/decontaminate.smk"
include: "rules/topics.smk"
include: "rules/corpus.smk"
include: "rules/tokenize.smk"
include: "rules/pretrain.smk"
include: "rules/finetune.smk"
include: "rules/align.smk"
include: "rules/compress.smk"
include: "rules/evaluate.smk"
include: "rules/report.smk"


rule all:
    default_target: True
    input:
        every_variant("report.render"),
        every_variant("report.render", "report.html"),
        manifests_of_all_variants("evaluate.common", "report.compare"),
