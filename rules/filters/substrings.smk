"""
substrings: passages of many words that are there twice or more in the whole corpus, taken out but where the first of each stands.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/substrings/sample/{shard}.manifest.json    a sample of shorter n-grams of words of each document
    results/{variant}/substrings/shared/{part}.manifest.json     those of the sample that are repeated, over all shards
    results/{variant}/substrings/windows/{shard}.manifest.json   hashes of the windows of words that may be repeated
    results/{variant}/substrings/repeated/{part}.manifest.json   those that are, over all shards, and where each stays
    results/{variant}/substrings/score/{shard}.manifest.json     spans/{shard}.parquet: what is taken out; what is left
    results/{variant}/substrings/select/{shard}.manifest.json    verdicts under substrings.select
"""


rule substrings_sample:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("substrings"),
        edits=edits("substrings"),
    output:
        manifest="results/{variant}/substrings/sample/{shard}.manifest.json",
    log:
        "logs/{variant}/substrings/sample/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/substrings/sample/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("substrings.sample")
    params:
        fingerprint=fingerprint("substrings.sample"),
        also=further_results("substrings.sample"),
    shell:
        """
        python -m crawl2llm.filters.substrings.sample \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule substrings_shared:
    input:
        samples=manifests("substrings.sample"),
    output:
        manifest="results/{variant}/substrings/shared/{part}.manifest.json",
    log:
        "logs/{variant}/substrings/shared/{part}.log",
    benchmark:
        "results/{variant}/benchmarks/substrings/shared/{part}.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("substrings.shared"),
        samples=manifest_ranges("substrings.sample"),
    shell:
        """
        python -m crawl2llm.filters.substrings.shared \
            --config {params.fingerprint:q} \
            --samples {params.samples:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule substrings_windows:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("substrings"),
        edits=edits("substrings"),
        sample=manifest("substrings.sample"),
        shared=manifests("substrings.shared"),
    output:
        manifest="results/{variant}/substrings/windows/{shard}.manifest.json",
    log:
        "logs/{variant}/substrings/windows/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/substrings/windows/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("substrings.windows")
    params:
        fingerprint=fingerprint("substrings.windows"),
        also=further_results("substrings.windows"),
        shared=manifest_ranges("substrings.shared"),
    shell:
        """
        python -m crawl2llm.filters.substrings.windows \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --sample {input.sample:q} \
            --shared {params.shared:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule substrings_repeated:
    input:
        windows=manifests("substrings.windows"),
    output:
        manifest="results/{variant}/substrings/repeated/{part}.manifest.json",
    log:
        "logs/{variant}/substrings/repeated/{part}.log",
    benchmark:
        "results/{variant}/benchmarks/substrings/repeated/{part}.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("substrings.repeated"),
        windows=manifest_ranges("substrings.windows"),
    shell:
        """
        python -m crawl2llm.filters.substrings.repeated \
            --config {params.fingerprint:q} \
            --windows {params.windows:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule substrings_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("substrings"),
        edits=edits("substrings"),
        sample=manifest("substrings.sample"),
        repeated=manifests("substrings.repeated"),
    output:
        manifest="results/{variant}/substrings/score/{shard}.manifest.json",
    log:
        "logs/{variant}/substrings/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/substrings/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("substrings.score")
    params:
        fingerprint=fingerprint("substrings.score"),
        also=further_results("substrings.score"),
        repeated=manifest_ranges("substrings.repeated"),
    shell:
        """
        python -m crawl2llm.filters.substrings.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --sample {input.sample:q} \
            --repeated {params.repeated:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule substrings_select:
    input:
        signals=manifest("substrings.score"),
    output:
        manifest="results/{variant}/substrings/select/{shard}.manifest.json",
    log:
        "logs/{variant}/substrings/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/substrings/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("substrings.select")
    params:
        fingerprint=fingerprint("substrings.select"),
        also=further_results("substrings.select"),
    shell:
        """
        python -m crawl2llm.filters.substrings.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
