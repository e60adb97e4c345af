"""
multilingual: the lines of a document that are in another language, cut, or the document dropped.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/language/score/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/multilingual/score/{shard}.manifest.json    spans/{shard}.parquet: what is cut; the languages of each document's lines
    results/{variant}/multilingual/select/{shard}.manifest.json   verdicts under multilingual.select
"""


rule multilingual_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("multilingual"),
        edits=edits("multilingual"),
        languages=manifest("language.score"),
    output:
        manifest="results/{variant}/multilingual/score/{shard}.manifest.json",
    log:
        "logs/{variant}/multilingual/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/multilingual/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("multilingual.score")
    params:
        fingerprint=fingerprint("multilingual.score"),
        also=further_results("multilingual.score"),
    shell:
        """
        python -m crawl2llm.filters.multilingual.score \
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


rule multilingual_select:
    input:
        signals=manifest("multilingual.score"),
    output:
        manifest="results/{variant}/multilingual/select/{shard}.manifest.json",
    log:
        "logs/{variant}/multilingual/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/multilingual/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("multilingual.select")
    params:
        fingerprint=fingerprint("multilingual.select"),
        also=further_results("multilingual.select"),
    shell:
        """
        python -m crawl2llm.filters.multilingual.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
