"""
lines: lines that are no text, taken out of documents as C4 does.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/lines/score/{shard}.manifest.json    spans/{shard}.parquet: what is taken out; what is left
    results/{variant}/lines/select/{shard}.manifest.json   verdicts under lines.select
"""


rule lines_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("lines"),
        edits=edits("lines"),
    output:
        manifest="results/{variant}/lines/score/{shard}.manifest.json",
    log:
        "logs/{variant}/lines/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/lines/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("lines.score")
    params:
        fingerprint=fingerprint("lines.score"),
        also=further_results("lines.score"),
    shell:
        """
        python -m crawl2llm.filters.lines.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule lines_select:
    input:
        signals=manifest("lines.score"),
    output:
        manifest="results/{variant}/lines/select/{shard}.manifest.json",
    log:
        "logs/{variant}/lines/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/lines/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("lines.select")
    params:
        fingerprint=fingerprint("lines.select"),
        also=further_results("lines.select"),
    shell:
        """
        python -m crawl2llm.filters.lines.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
