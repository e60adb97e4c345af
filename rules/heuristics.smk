"""
heuristics: what a document looks like under Gopher's, C4's and FineWeb's rules, and which documents stay.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/language/score/{shard}.manifest.json
    results/{variant}/language/select/manifest.json

OUTPUTS:

    results/{variant}/heuristics/score/{shard}.manifest.json    every measure of every document that language kept
    results/{variant}/heuristics/select/manifest.json           verdicts under heuristics.select
"""


rule heuristics_score:
    input:
        documents=manifest("ingest.extract"),
        languages=manifest("language.score"),
        verdicts=manifest("language.select"),
    output:
        manifest="results/{variant}/heuristics/score/{shard}.manifest.json",
    log:
        "logs/{variant}/heuristics/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/heuristics/score/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("heuristics.score"),
        also=also,
    shell:
        """
        python -m scripts.heuristics.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --languages {input.languages:q} \
            --verdicts {input.verdicts:q} \
            --also {params.also:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule heuristics_select:
    input:
        signals=manifests("heuristics.score"),
    output:
        manifest="results/{variant}/heuristics/select/manifest.json",
    log:
        "logs/{variant}/heuristics/select.log",
    benchmark:
        "results/{variant}/benchmarks/heuristics/select.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("heuristics.select"),
        documents=ranged("ingest.extract"),
        signals=ranged("heuristics.score"),
    shell:
        """
        python -m scripts.heuristics.select \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --documents {params.documents:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
