"""
dedup: exact and near duplicates over all shards, each verified, each with the kept document it is a duplicate of.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/dedup/signature/{shard}.manifest.json   text hash, and MinHash bands of the shingles
    results/{variant}/dedup/exact/manifest.json               byte-equal texts
    results/{variant}/dedup/band/{band}.manifest.json         candidate pairs of a band
    results/{variant}/dedup/sets/{shard}.manifest.json        shingle sets of the documents in candidate pairs
    results/{variant}/dedup/verify/{part}.manifest.json       exact Jaccard similarity of every candidate pair
    results/{variant}/dedup/select/manifest.json              verdicts under dedup.select
    results/{variant}/dedup/export/{shard}.manifest.json      signals and shingle sets of the corpus, where dedup.export.write is true
"""


rule dedup_signature:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("dedup"),
        edits=edits("dedup"),
    output:
        manifest="results/{variant}/dedup/signature/{shard}.manifest.json",
    log:
        "logs/{variant}/dedup/signature/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/signature/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("dedup.signature")
    params:
        fingerprint=fingerprint("dedup.signature"),
        also=further_results("dedup.signature"),
    shell:
        """
        python -m crawl2llm.filters.dedup.signature \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_exact:
    input:
        signals=manifests("dedup.signature"),
    output:
        manifest="results/{variant}/dedup/exact/manifest.json",
    log:
        "logs/{variant}/dedup/exact.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/exact.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.exact"),
        signals=manifest_ranges("dedup.signature"),
    shell:
        """
        python -m crawl2llm.filters.dedup.exact \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_band:
    input:
        exact=manifest("dedup.exact"),
    output:
        manifest="results/{variant}/dedup/band/{band}.manifest.json",
    log:
        "logs/{variant}/dedup/band/{band}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/band/{band}.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.band"),
        also=further_results("dedup.band"),
        signals=manifest_ranges("dedup.signature"),  # dedup.exact waits for them
    shell:
        """
        python -m crawl2llm.filters.dedup.band \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --exact {input.exact:q} \
            --also {params.also:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_sets:
    input:
        pairs=manifests("dedup.band"),
        exact=manifest("dedup.exact"),
        signals=manifest("dedup.signature"),
        documents=manifest("ingest.extract"),
        edits=edits("dedup"),
    output:
        manifest="results/{variant}/dedup/sets/{shard}.manifest.json",
    log:
        "logs/{variant}/dedup/sets/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/sets/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("dedup.sets")
    params:
        fingerprint=fingerprint("dedup.sets"),
        also=further_results("dedup.sets"),
        pairs=manifest_ranges("dedup.band"),
    shell:
        """
        python -m crawl2llm.filters.dedup.sets \
            --config {params.fingerprint:q} \
            --pairs {params.pairs:q} \
            --exact {input.exact:q} \
            --signals {input.signals:q} \
            --documents {input.documents:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_verify:
    input:
        sets=manifests("dedup.sets"),
    output:
        manifest="results/{variant}/dedup/verify/{part}.manifest.json",
    log:
        "logs/{variant}/dedup/verify/{part}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/verify/{part}.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.verify"),
        pairs=manifest_ranges("dedup.band"),  # dedup.sets waits for them
        sets=manifest_ranges("dedup.sets"),
    shell:
        """
        python -m crawl2llm.filters.dedup.verify \
            --config {params.fingerprint:q} \
            --pairs {params.pairs:q} \
            --sets {params.sets:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_select:
    input:
        exact=manifest("dedup.exact"),
        pairs=manifests("dedup.verify"),
    output:
        manifest="results/{variant}/dedup/select/manifest.json",
    log:
        "logs/{variant}/dedup/select.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/select.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.select"),
        pairs=manifest_ranges("dedup.verify"),
        signals=manifest_ranges("dedup.signature"),  # dedup.exact waits for them
    shell:
        """
        python -m crawl2llm.filters.dedup.select \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --exact {input.exact:q} \
            --pairs {params.pairs:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_export:
    input:
        documents=manifest("ingest.extract"),
        edits=edits("dedup"),
        signals=manifest("dedup.signature"),
        split=manifest("corpus.split"),
    output:
        manifest="results/{variant}/dedup/export/{shard}.manifest.json",
    log:
        "logs/{variant}/dedup/export/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/export/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("dedup.export")
    params:
        fingerprint=fingerprint("dedup.export"),
        also=further_results("dedup.export"),
    shell:
        """
        python -m crawl2llm.filters.dedup.export \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --edits {input.edits:q} \
            --signals {input.signals:q} \
            --split {input.split:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
