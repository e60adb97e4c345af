"""
toxicity: toxic and adult content, by lists of words and by classifiers.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/language/score/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/toxicity/score/{shard}.manifest.json    how many listed words, and probabilities
    results/{variant}/toxicity/select/{shard}.manifest.json   verdicts under toxicity.select
"""


rule toxicity_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("toxicity"),
        edits=edits("toxicity"),
        languages=manifest("language.score"),
    output:
        manifest="results/{variant}/toxicity/score/{shard}.manifest.json",
    log:
        "logs/{variant}/toxicity/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/toxicity/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("toxicity.score")
    params:
        fingerprint=fingerprint("toxicity.score"),
        also=further_results("toxicity.score"),
    shell:
        """
        python -m crawl2llm.filters.toxicity.score \
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


rule toxicity_select:
    input:
        signals=manifest("toxicity.score"),
    output:
        manifest="results/{variant}/toxicity/select/{shard}.manifest.json",
    log:
        "logs/{variant}/toxicity/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/toxicity/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("toxicity.select")
    params:
        fingerprint=fingerprint("toxicity.select"),
        also=further_results("toxicity.select"),
    shell:
        """
        python -m crawl2llm.filters.toxicity.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
