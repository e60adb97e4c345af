"""
tokenize: a tokenizer trained on the corpus, and the corpus as token ids.

REQUIRED INPUTS:

    results/{variant}/corpus/write/{shard}.manifest.json

OUTPUTS:

    results/{variant}/tokenize/train/manifest.json             tokenizer.json, as transformers loads it
    results/{variant}/tokenize/encode/{shard}.manifest.json    Megatron indexed datasets of both splits, one for each source
"""


rule tokenize_train:
    input:
        corpus=manifests("corpus.write"),
    output:
        manifest="results/{variant}/tokenize/train/manifest.json",
    log:
        "logs/{variant}/tokenize/train.log",
    benchmark:
        "results/{variant}/benchmarks/tokenize/train.tsv"
    conda:
        "../envs/data.yaml"
    threads: 2  # of tokenizers, which counts pairs in as many as it gets; a profile may give more
    params:
        fingerprint=fingerprint("tokenize.train"),
        corpus=manifest_ranges("corpus.write"),
    shell:
        """
        RAYON_NUM_THREADS={threads} python -m crawl2llm.stages.tokenize.train \
            --config {params.fingerprint:q} \
            --corpus {params.corpus:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule tokenize_encode:
    input:
        corpus=manifest("corpus.write"),
        tokenizer=manifest("tokenize.train"),
    output:
        manifest="results/{variant}/tokenize/encode/{shard}.manifest.json",
    log:
        "logs/{variant}/tokenize/encode/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/tokenize/encode/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: shards_at_once("tokenize.encode")
    params:
        fingerprint=fingerprint("tokenize.encode"),
        also=further_results("tokenize.encode"),
    shell:
        """
        RAYON_NUM_THREADS={threads} python -m crawl2llm.stages.tokenize.encode \
            --config {params.fingerprint:q} \
            --corpus {input.corpus:q} \
            --tokenizer {input.tokenizer:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
