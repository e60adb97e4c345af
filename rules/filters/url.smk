"""
url: which documents come from an address that a block list names.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts of the filters before it

OUTPUTS:

    results/{variant}/url/score/{shard}.manifest.json    what of each URL a list names
    results/{variant}/url/select/{shard}.manifest.json   verdicts under url.select
"""


rule url_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("url"),
    output:
        manifest="results/{variant}/url/score/{shard}.manifest.json",
    log:
        "logs/{variant}/url/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/url/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("url.score")
    params:
        fingerprint=fingerprint("url.score"),
        also=further_results("url.score"),
    shell:
        """
        python -m crawl2llm.filters.url.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule url_select:
    input:
        signals=manifest("url.score"),
    output:
        manifest="results/{variant}/url/select/{shard}.manifest.json",
    log:
        "logs/{variant}/url/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/url/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("url.select")
    params:
        fingerprint=fingerprint("url.select"),
        also=further_results("url.select"),
    shell:
        """
        python -m crawl2llm.filters.url.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
