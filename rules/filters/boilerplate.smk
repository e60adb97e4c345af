"""
boilerplate: lines that are on many pages of their host, taken out of documents.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/boilerplate/count/{shard}.manifest.json     on how many documents of its host each line is
    results/{variant}/boilerplate/frequent/{part}.manifest.json   the lines that are on many, over all shards
    results/{variant}/boilerplate/score/{shard}.manifest.json     spans/{shard}.parquet: what is taken out; what is left
    results/{variant}/boilerplate/select/{shard}.manifest.json    verdicts under boilerplate.select
"""


rule boilerplate_count:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("boilerplate"),
        edits=edits("boilerplate"),
    output:
        manifest="results/{variant}/boilerplate/count/{shard}.manifest.json",
    log:
        "logs/{variant}/boilerplate/count/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/boilerplate/count/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("boilerplate.count")
    params:
        fingerprint=fingerprint("boilerplate.count"),
        also=further_results("boilerplate.count"),
    shell:
        """
        python -m crawl2llm.filters.boilerplate.count \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule boilerplate_frequent:
    input:
        counts=manifests("boilerplate.count"),
    output:
        manifest="results/{variant}/boilerplate/frequent/{part}.manifest.json",
    log:
        "logs/{variant}/boilerplate/frequent/{part}.log",
    benchmark:
        "results/{variant}/benchmarks/boilerplate/frequent/{part}.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("boilerplate.frequent"),
        counts=manifest_ranges("boilerplate.count"),
    shell:
        """
        python -m crawl2llm.filters.boilerplate.frequent \
            --config {params.fingerprint:q} \
            --counts {params.counts:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule boilerplate_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("boilerplate"),
        edits=edits("boilerplate"),
        frequent=manifests("boilerplate.frequent"),
    output:
        manifest="results/{variant}/boilerplate/score/{shard}.manifest.json",
    log:
        "logs/{variant}/boilerplate/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/boilerplate/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("boilerplate.score")
    params:
        fingerprint=fingerprint("boilerplate.score"),
        also=further_results("boilerplate.score"),
        frequent=manifest_ranges("boilerplate.frequent"),
    shell:
        """
        python -m crawl2llm.filters.boilerplate.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --frequent {params.frequent:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule boilerplate_select:
    input:
        signals=manifest("boilerplate.score"),
    output:
        manifest="results/{variant}/boilerplate/select/{shard}.manifest.json",
    log:
        "logs/{variant}/boilerplate/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/boilerplate/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("boilerplate.select")
    params:
        fingerprint=fingerprint("boilerplate.select"),
        also=further_results("boilerplate.select"),
    shell:
        """
        python -m crawl2llm.filters.boilerplate.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
