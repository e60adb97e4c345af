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
include: "rules/url.smk"
include: "rules/language.smk"
include: "rules/multilingual.smk"
include: "rules/heuristics.smk"
include: "rules/lines.smk"
include: "rules/boilerplate.smk"
include: "rules/licence.smk"
include: "rules/sourcecode.smk"
include: "rules/toxicity.smk"
include: "rules/pii.smk"
include: "rules/dedup.smk"
include: "rules/paragraphs.smk"
include: "rules/substrings.smk"
include: "rules/quality.smk"
include: "rules/decontaminate.smk"
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
        compared("evaluate.common"),
        compared("report.compare"),
