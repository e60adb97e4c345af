"""
language: which language a document is in, and which documents stay.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/language/score/{shard}.manifest.json    fastText's best language and its probability
    results/{variant}/language/compare/{shard}.manifest.json   what other models find, and the script
    results/{variant}/language/select/{shard}.manifest.json   verdicts under language.select
"""


rule language_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("language"),
        edits=edits("language"),
    output:
        manifest="results/{variant}/language/score/{shard}.manifest.json",
    log:
        "logs/{variant}/language/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/language/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("language.score")
    params:
        fingerprint=fingerprint("language.score"),
        also=further_results("language.score"),
    shell:
        """
        python -m crawl2llm.filters.language.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule language_compare:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("language"),
        edits=edits("language"),
        languages=manifest("language.score"),
    output:
        manifest="results/{variant}/language/compare/{shard}.manifest.json",
    log:
        "logs/{variant}/language/compare/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/language/compare/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("language.compare")
    params:
        fingerprint=fingerprint("language.compare"),
        also=further_results("language.compare"),
    shell:
        """
        python -m crawl2llm.filters.language.compare \
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


rule language_select:
    input:
        signals=manifest("language.score"),
        compared=manifests_if_needed("language.compare", "language.select"),
    output:
        manifest="results/{variant}/language/select/{shard}.manifest.json",
    log:
        "logs/{variant}/language/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/language/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("language.select")
    params:
        fingerprint=fingerprint("language.select"),
        also=further_results("language.select"),
    shell:
        """
        python -m crawl2llm.filters.language.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --compared {input.compared:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
