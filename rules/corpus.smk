"""
corpus: which documents are held out, and the survivors' text, written once, shuffled and split.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/ingest/check/manifest.json, and the select of every filter
    the signatures and measured pairs of dedup, where it is among the filters
    the edits of the filters

OUTPUTS:

    results/{variant}/corpus/split/manifest.json            which documents are for validation
    results/{variant}/corpus/write/{shard}.manifest.json    train, validation, and the table of dropped documents
"""


rule corpus_split:
    input:
        documents=manifests("ingest.extract"),
        verdicts=verdicts(),
    output:
        manifest="results/{variant}/corpus/split/manifest.json",
    log:
        "logs/{variant}/corpus/split.log",
    benchmark:
        "results/{variant}/benchmarks/corpus/split.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("corpus.split"),
        documents=ranged("ingest.extract"),
        verdicts=verdicts(ranged=True),
        # The verdicts of dedup wait for these
        signals=ranged("dedup.signature"),
        exact=ranged("dedup.exact"),
        pairs=ranged("dedup.verify"),
    shell:
        """
        python -m scripts.corpus.split \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --verdicts {params.verdicts:q} \
            --signals {params.signals:q} \
            --exact {params.exact:q} \
            --pairs {params.pairs:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule corpus_write:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts(),
        edits=edits(),
        split=manifest("corpus.split"),
    output:
        manifest="results/{variant}/corpus/write/{shard}.manifest.json",
    log:
        "logs/{variant}/corpus/write/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/corpus/write/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: at_once("corpus.write")
    params:
        fingerprint=fingerprint("corpus.write"),
        also=also("corpus.write"),
    shell:
        """
        python -m scripts.corpus.write \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --split {input.split:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
