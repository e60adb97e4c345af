"""
paragraphs: paragraphs that are there twice or more in the whole corpus, taken out but where the first of each stands.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/paragraphs/hash/{shard}.manifest.json      hashes of the paragraphs of each document
    results/{variant}/paragraphs/repeated/{part}.manifest.json   those that are repeated, over all shards, and where each stays
    results/{variant}/paragraphs/score/{shard}.manifest.json     spans/{shard}.parquet: what is taken out; what is left
    results/{variant}/paragraphs/select/{shard}.manifest.json    verdicts under paragraphs.select
"""


rule paragraphs_hash:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("paragraphs"),
        edits=edits("paragraphs"),
    output:
        manifest="results/{variant}/paragraphs/hash/{shard}.manifest.json",
    log:
        "logs/{variant}/paragraphs/hash/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/paragraphs/hash/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("paragraphs.hash")
    params:
        fingerprint=fingerprint("paragraphs.hash"),
        also=further_results("paragraphs.hash"),
    shell:
        """
        python -m crawl2llm.filters.paragraphs.hash \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule paragraphs_repeated:
    input:
        hashes=manifests("paragraphs.hash"),
    output:
        manifest="results/{variant}/paragraphs/repeated/{part}.manifest.json",
    log:
        "logs/{variant}/paragraphs/repeated/{part}.log",
    benchmark:
        "results/{variant}/benchmarks/paragraphs/repeated/{part}.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("paragraphs.repeated"),
        hashes=manifest_ranges("paragraphs.hash"),
    shell:
        """
        python -m crawl2llm.filters.paragraphs.repeated \
            --config {params.fingerprint:q} \
            --hashes {params.hashes:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule paragraphs_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("paragraphs"),
        edits=edits("paragraphs"),
        hashes=manifest("paragraphs.hash"),
        repeated=manifests("paragraphs.repeated"),
    output:
        manifest="results/{variant}/paragraphs/score/{shard}.manifest.json",
    log:
        "logs/{variant}/paragraphs/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/paragraphs/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("paragraphs.score")
    params:
        fingerprint=fingerprint("paragraphs.score"),
        also=further_results("paragraphs.score"),
        repeated=manifest_ranges("paragraphs.repeated"),
    shell:
        """
        python -m crawl2llm.filters.paragraphs.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --hashes {input.hashes:q} \
            --repeated {params.repeated:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule paragraphs_select:
    input:
        signals=manifest("paragraphs.score"),
    output:
        manifest="results/{variant}/paragraphs/select/{shard}.manifest.json",
    log:
        "logs/{variant}/paragraphs/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/paragraphs/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("paragraphs.select")
    params:
        fingerprint=fingerprint("paragraphs.select"),
        also=further_results("paragraphs.select"),
    shell:
        """
        python -m crawl2llm.filters.paragraphs.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
