"""
pretrain: a causal language model trained from scratch with DeepSpeed.

REQUIRED INPUTS:

    results/{variant}/tokenize/encode/{shard}.manifest.json   of every shard
    results/{variant}/tokenize/train/manifest.json

OUTPUTS:

    results/{variant}/pretrain/train/manifest.json            model/ and losses.jsonl; metrics.jsonl beside them

Checkpoints live undeclared in checkpoints/, so that a failed or stopped job resumes from the newest.
"""


rule pretrain_train:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
    output:
        manifest="results/{variant}/pretrain/train/manifest.json",
    log:
        "logs/{variant}/pretrain/train.log",
    benchmark:
        "results/{variant}/benchmarks/pretrain/train.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # the launcher needs srun, which is not in the image: it starts the image itself
    threads: cores("pretrain.train")
    params:
        fingerprint=fingerprint("pretrain.train"),
        launcher=placement("pretrain.train", options.LAUNCHER),
        placement=placement("pretrain.train"),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        exec python -m scripts.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            scripts.pretrain.train \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
