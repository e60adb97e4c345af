"""
corpus: which documents are held out, and the survivors' text, written once, shuffled and split.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    results/{variant}/ingest/check/manifest.json, and the select of every filter
    the signatures and measured pairs of dedup, where it is among the filters
    the edits of the filters

OUTPUTS:

    results/{variant}/corpus/split/manifest.json            which documents are for validation
    results/{variant}/corpus/reference/manifest.json        shingles of the documents that main holds out, where variants are compared
    results/{variant}/corpus/heldout/{shard}.manifest.json  verdicts on the training documents that are like these
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
        documents=manifest_ranges("ingest.extract"),
        verdicts=verdicts(ranged=True),
        # The verdicts of dedup wait for these
        signals=manifest_ranges("dedup.signature"),
        exact=manifest_ranges("dedup.exact"),
        pairs=manifest_ranges("dedup.verify"),
    shell:
        """
        python -m crawl2llm.stages.corpus.split \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --verdicts {params.verdicts:q} \
            --signals {params.signals:q} \
            --exact {params.exact:q} \
            --pairs {params.pairs:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


# Of main in every variant: what all of them are measured on.
rule corpus_reference:
    input:
        documents=manifests_of_main("ingest.extract"),
        edits=edits_of_main(),
        split=manifests_of_main("corpus.split"),
    output:
        manifest="results/{variant}/corpus/reference/manifest.json",
    log:
        "logs/{variant}/corpus/reference.log",
    benchmark:
        "results/{variant}/benchmarks/corpus/reference.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("corpus.reference"),
        documents=manifests_of_main("ingest.extract", ranged=True),
        edits=edits_of_main(ranged=True),
    shell:
        """
        python -m crawl2llm.stages.corpus.reference \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --edits {params.edits:q} \
            --split {input.split:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule corpus_heldout:
    input:
        documents=manifest("ingest.extract"),
        edits=edits(),
        split=manifest("corpus.split"),
        reference=manifest("corpus.reference"),
    output:
        manifest="results/{variant}/corpus/heldout/{shard}.manifest.json",
    log:
        "logs/{variant}/corpus/heldout/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/corpus/heldout/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: shards_at_once("corpus.heldout")
    params:
        fingerprint=fingerprint("corpus.heldout"),
        also=further_results("corpus.heldout"),
    shell:
        """
        python -m crawl2llm.stages.corpus.heldout \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --edits {input.edits:q} \
            --split {input.split:q} \
            --reference {input.reference:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule corpus_write:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts(),
        edits=edits(),
        split=manifest("corpus.split"),
        heldout=manifest("corpus.heldout"),
    output:
        manifest="results/{variant}/corpus/write/{shard}.manifest.json",
    log:
        "logs/{variant}/corpus/write/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/corpus/write/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: shards_at_once("corpus.write")
    params:
        fingerprint=fingerprint("corpus.write"),
        also=further_results("corpus.write"),
    shell:
        """
        python -m crawl2llm.stages.corpus.write \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --split {input.split:q} \
            --heldout {input.heldout:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
