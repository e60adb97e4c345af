"""
compress: models to give away.

REQUIRED INPUTS:

    the manifests of the models that an exported one is made from, and of their evaluations
    results/{variant}/tokenize/encode/{shard}.manifest.json    held-out text
    the manifests of ingest, of every filter, of corpus, tokenize.train, finetune.pairs and evaluate.items, for its card

OUTPUTS:

    results/{variant}/compress/export/{model}.manifest.json    {model}/: safetensors, config and tokenizer, or GGUF files
    results/{variant}/compress/export/{model}/README.md        its card; it names the machine too, so no manifest lists it
"""


rule compress_export:
    input:
        models=lineage(),
        evaluations=lineage("evaluate.model"),
        documents=manifests("ingest.extract"),
        verdicts=verdicts(),
        split=manifest("corpus.split"),
        corpus=manifests("corpus.write"),
        tokenizer=manifest("tokenize.train"),
        tokens=manifests("tokenize.encode"),
        pairs=manifest("finetune.pairs"),
        made=manifest("evaluate.items"),
    output:
        manifest="results/{variant}/compress/export/{model}.manifest.json",
    log:
        "logs/{variant}/compress/export/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/compress/export/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: own("compress.export", "threads")
    params:
        fingerprint=fingerprint("compress.export"),
        documents=ranged("ingest.extract"),
        verdicts=verdicts(ranged=True),
        corpus=ranged("corpus.split", "corpus.write"),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        python -m scripts.compress.export \
            --config {params.fingerprint:q} \
            --models {input.models:q} \
            --evaluations {input.evaluations:q} \
            --record {params.documents:q} {params.verdicts:q} {params.corpus:q} {input.tokenizer:q} {input.pairs:q} {input.made:q} \
            --tokens {params.tokens:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
