"""
heuristics: what a document looks like under Gopher's, C4's and FineWeb's rules, and which documents stay.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/language/score/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/heuristics/score/{shard}.manifest.json    every measure of every document that got here
    results/{variant}/heuristics/calibrate/manifest.json         thresholds.json: the thresholds of each language, from its own distribution
    results/{variant}/heuristics/select/{shard}.manifest.json   verdicts under heuristics.select
"""


rule heuristics_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("heuristics"),
        edits=edits("heuristics"),
        languages=manifest("language.score"),
    output:
        manifest="results/{variant}/heuristics/score/{shard}.manifest.json",
    log:
        "logs/{variant}/heuristics/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/heuristics/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("heuristics.score")
    params:
        fingerprint=fingerprint("heuristics.score"),
        also=further_results("heuristics.score"),
    shell:
        """
        python -m crawl2llm.filters.heuristics.score \
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


rule heuristics_calibrate:
    input:
        signals=manifests("heuristics.score"),
        languages=manifests("language.score"),
    output:
        manifest="results/{variant}/heuristics/calibrate/manifest.json",
    log:
        "logs/{variant}/heuristics/calibrate.log",
    benchmark:
        "results/{variant}/benchmarks/heuristics/calibrate.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("heuristics.calibrate"),
        signals=manifest_ranges("heuristics.score"),
        languages=manifest_ranges("language.score"),
    shell:
        """
        python -m crawl2llm.filters.heuristics.calibrate \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --languages {params.languages:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule heuristics_select:
    input:
        signals=manifest("heuristics.score"),
        thresholds=manifests_if_needed("heuristics.calibrate", "heuristics.select"),
        languages=manifests_if_needed("language.score", "heuristics.select"),
    output:
        manifest="results/{variant}/heuristics/select/{shard}.manifest.json",
    log:
        "logs/{variant}/heuristics/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/heuristics/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("heuristics.select")
    params:
        fingerprint=fingerprint("heuristics.select"),
        also=further_results("heuristics.select"),
    shell:
        """
        python -m crawl2llm.filters.heuristics.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --thresholds {input.thresholds:q} \
            --languages {input.languages:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
