"""
topics: what documents are about, and what each filter takes away of it; where the config asks for clusters.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/language/score/{shard}.manifest.json   where the topics are by language
    all verdicts

OUTPUTS:

    results/{variant}/topics/train/manifest.json            topics.json and weights.npz: topics of a sample; map.parquet: a map of it
    results/{variant}/topics/score/{shard}.manifest.json    the topic of each document
    results/{variant}/topics/count/{shard}.manifest.json    documents of each topic that got to each filter, and those that it dropped
"""


rule topics_train:
    input:
        documents=manifests("ingest.extract"),
        languages=manifests_if_needed("language.score", "topics.train"),
    output:
        manifest="results/{variant}/topics/train/manifest.json",
    log:
        "logs/{variant}/topics/train.log",
    benchmark:
        "results/{variant}/benchmarks/topics/train.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("topics.train"),
        documents=manifest_ranges("ingest.extract"),
        languages=manifests_if_needed("language.score", "topics.train", ranged=True),
    shell:
        """
        python -m crawl2llm.stages.topics.train \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --languages {params.languages:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule topics_score:
    input:
        documents=manifest("ingest.extract"),
        model=manifest("topics.train"),
        languages=manifests_if_needed("language.score", "topics.score"),
    output:
        manifest="results/{variant}/topics/score/{shard}.manifest.json",
    log:
        "logs/{variant}/topics/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/topics/score/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: shards_at_once("topics.score")
    params:
        fingerprint=fingerprint("topics.score"),
        also=further_results("topics.score"),
    shell:
        """
        python -m crawl2llm.stages.topics.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --model {input.model:q} \
            --languages {input.languages:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule topics_count:
    input:
        topics=manifest("topics.score"),
        verdicts=verdicts(),
    output:
        manifest="results/{variant}/topics/count/{shard}.manifest.json",
    log:
        "logs/{variant}/topics/count/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/topics/count/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: shards_at_once("topics.count")
    params:
        fingerprint=fingerprint("topics.count"),
        also=further_results("topics.count"),
    shell:
        """
        python -m crawl2llm.stages.topics.count \
            --config {params.fingerprint:q} \
            --topics {input.topics:q} \
            --verdicts {input.verdicts:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
