"""
quality: which of the crawl's documents look like the curated sources.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/quality/train/manifest.json            the classifier and its held-out ROC-AUC
    results/{variant}/quality/score/{shard}.manifest.json    its probability for each document
    results/{variant}/quality/select/manifest.json           verdicts under quality.select
"""


rule quality_train:
    input:
        documents=manifests("ingest.extract"),
        verdicts=before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/train/manifest.json",
    log:
        "logs/{variant}/quality/train.log",
    benchmark:
        "results/{variant}/benchmarks/quality/train.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.train"),
        documents=ranged("ingest.extract"),
        verdicts=before("quality", ranged=True),
        edits=edits("quality", ranged=True),
    shell:
        """
        python -m scripts.quality.train \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --verdicts {params.verdicts:q} \
            --edits {params.edits:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_score:
    input:
        model=manifest("quality.train"),
        documents=manifest("ingest.extract"),
        verdicts=before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/score/{shard}.manifest.json",
    log:
        "logs/{variant}/quality/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/quality/score/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: at_once("quality.score")
    params:
        fingerprint=fingerprint("quality.score"),
        also=also("quality.score"),
    shell:
        """
        python -m scripts.quality.score \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_select:
    input:
        signals=manifests("quality.score"),
        languages=asked("language.score", "quality.select"),
    output:
        manifest="results/{variant}/quality/select/manifest.json",
    log:
        "logs/{variant}/quality/select.log",
    benchmark:
        "results/{variant}/benchmarks/quality/select.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.select"),
        signals=ranged("quality.score"),
        languages=asked("language.score", "quality.select", ranged=True),
    shell:
        """
        python -m scripts.quality.select \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --languages {params.languages:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
