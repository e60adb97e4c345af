"""
licence: documents under an allowed licence.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts of the filter before it

OUTPUTS:

    results/{variant}/licence/score/{shard}.manifest.json    the licence of each document
    results/{variant}/licence/select/{shard}.manifest.json   verdicts under licence.select
"""


rule licence_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("licence"),
    output:
        manifest="results/{variant}/licence/score/{shard}.manifest.json",
    log:
        "logs/{variant}/licence/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/licence/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("licence.score")
    params:
        fingerprint=fingerprint("licence.score"),
        also=further_results("licence.score"),
    shell:
        """
        python -m crawl2llm.filters.licence.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule licence_select:
    input:
        signals=manifest("licence.score"),
    output:
        manifest="results/{variant}/licence/select/{shard}.manifest.json",
    log:
        "logs/{variant}/licence/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/licence/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("licence.select")
    params:
        fingerprint=fingerprint("licence.select"),
        also=further_results("licence.select"),
    shell:
        """
        python -m crawl2llm.filters.licence.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
