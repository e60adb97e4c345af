"""
pii: personal data in texts, replaced by placeholders; documents with too much of it dropped.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/language/score/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/pii/score/{shard}.manifest.json    found/{shard}.parquet: where personal data is; how much of each kind
    results/{variant}/pii/select/{shard}.manifest.json   spans/{shard}.parquet: what is replaced; verdicts under pii.select
"""


rule pii_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("pii"),
        edits=edits("pii"),
        languages=manifest("language.score"),
    output:
        manifest="results/{variant}/pii/score/{shard}.manifest.json",
    log:
        "logs/{variant}/pii/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/pii/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("pii.score")
    params:
        fingerprint=fingerprint("pii.score"),
        also=further_results("pii.score"),
    shell:
        """
        python -m crawl2llm.filters.pii.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --languages {input.languages:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule pii_select:
    input:
        signals=manifest("pii.score"),
    output:
        manifest="results/{variant}/pii/select/{shard}.manifest.json",
    log:
        "logs/{variant}/pii/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/pii/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("pii.select")
    params:
        fingerprint=fingerprint("pii.select"),
        also=further_results("pii.select"),
    shell:
        """
        python -m crawl2llm.filters.pii.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
