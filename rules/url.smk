"""
url: which documents come from an address that a block list names.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts of the filters before it

OUTPUTS:

    results/{variant}/url/score/{shard}.manifest.json    what of each URL a list names
    results/{variant}/url/select/manifest.json           verdicts under url.select
"""


rule url_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=before("url"),
    output:
        manifest="results/{variant}/url/score/{shard}.manifest.json",
    log:
        "logs/{variant}/url/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/url/score/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: at_once("url.score")
    params:
        fingerprint=fingerprint("url.score"),
        also=also("url.score"),
    shell:
        """
        python -m scripts.url.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule url_select:
    input:
        signals=manifests("url.score"),
    output:
        manifest="results/{variant}/url/select/manifest.json",
    log:
        "logs/{variant}/url/select.log",
    benchmark:
        "results/{variant}/benchmarks/url/select.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("url.select"),
        signals=ranged("url.score"),
    shell:
        """
        python -m scripts.url.select \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
