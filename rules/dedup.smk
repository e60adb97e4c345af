"""
dedup: exact and near duplicates over all shards, each verified, each with the kept document it is a duplicate of.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/dedup/signature/{shard}.manifest.json   text hash, and MinHash bands of the shingles
    results/{variant}/dedup/exact/manifest.json               byte-equal texts
    results/{variant}/dedup/band/{band}.manifest.json         candidate pairs of a band
    results/{variant}/dedup/verify/{shard}.manifest.json      exact Jaccard similarity of every candidate pair
    results/{variant}/dedup/select/manifest.json              verdicts under dedup.select
"""


rule dedup_signature:
    input:
        documents=manifest("ingest.extract"),
        verdicts=before("dedup"),
        edits=edits("dedup"),
    output:
        manifest="results/{variant}/dedup/signature/{shard}.manifest.json",
    log:
        "logs/{variant}/dedup/signature/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/signature/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: at_once("dedup.signature")
    params:
        fingerprint=fingerprint("dedup.signature"),
        also=also("dedup.signature"),
    shell:
        """
        python -m scripts.dedup.signature \
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
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.exact"),
        signals=ranged("dedup.signature"),
    shell:
        """
        python -m scripts.dedup.exact \
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
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.band"),
        also=also("dedup.band"),
        signals=ranged("dedup.signature"),
    shell:
        """
        python -m scripts.dedup.band \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --exact {input.exact:q} \
            --also {params.also:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule dedup_verify:
    input:
        pairs=manifests("dedup.band"),
        documents=manifest("ingest.extract"),
        edits=all_edits("dedup"),
    output:
        manifest="results/{variant}/dedup/verify/{shard}.manifest.json",
    log:
        "logs/{variant}/dedup/verify/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/dedup/verify/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: at_once("dedup.verify")
    params:
        fingerprint=fingerprint("dedup.verify"),
        also=also("dedup.verify"),
        documents=ranged("ingest.extract"),
        edits=all_edits("dedup", ranged=True),
        pairs=ranged("dedup.band"),
    shell:
        """
        python -m scripts.dedup.verify \
            --config {params.fingerprint:q} \
            --pairs {params.pairs:q} \
            --documents {params.documents:q} \
            --edits {params.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
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
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("dedup.select"),
        pairs=ranged("dedup.verify"),
        signals=ranged("dedup.signature"),
    shell:
        """
        python -m scripts.dedup.select \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --exact {input.exact:q} \
            --pairs {params.pairs:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
