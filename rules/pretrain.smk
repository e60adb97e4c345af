"""
pretrain: a causal language model trained from scratch, with DeepSpeed or torch alone, and before that, what it will take.

REQUIRED INPUTS:

    results/{variant}/tokenize/encode/{shard}.manifest.json   of every shard
    results/{variant}/tokenize/train/manifest.json
    results/{variant}/{language,quality}/score/{shard}.manifest.json   of every shard, where pretrain.mix is by one of these

OUTPUTS:

    results/{variant}/pretrain/mix/manifest.json              mix.json and spans.npy: the order of sources, where the config has phases
    results/{variant}/pretrain/plan/manifest.json             what the training takes: parameters, tokens, operations; memory, hours and price in run.json
    results/{variant}/pretrain/train/manifest.json            model/ and losses.jsonl; metrics.jsonl beside them

Checkpoints live undeclared in checkpoints/, so that a failed or stopped job resumes from the newest.
"""


# Reads no token; where documents are grouped, their ids and sizes.
rule pretrain_mix:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        languages=grouping("language.score"),
        scores=grouping("quality.score"),
    output:
        manifest="results/{variant}/pretrain/mix/manifest.json",
    log:
        "logs/{variant}/pretrain/mix.log",
    benchmark:
        "results/{variant}/benchmarks/pretrain/mix.tsv"
    priority: 1
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("pretrain.mix"),
        languages=grouping("language.score", ranged=True),
        scores=grouping("quality.score", ranged=True),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        python -m scripts.pretrain.mix \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --signals {params.languages:q} {params.scores:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


# Seconds, where the workflow was started, and before the training begins; the training does not read it.
rule pretrain_plan:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
    output:
        manifest="results/{variant}/pretrain/plan/manifest.json",
    log:
        "logs/{variant}/pretrain/plan.log",
    benchmark:
        "results/{variant}/benchmarks/pretrain/plan.tsv"
    priority: 1
    localrule: True
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("pretrain.plan"),
        gpu=profile_gpu,
        placement=placement("pretrain.plan"),
        training=placement("pretrain.train"),
        launcher=placement("pretrain.train", options.LAUNCHER),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        python -m scripts.pretrain.plan \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --profile-gpu={params.gpu:q} \
            {params.placement:q} \
            {params.training:q} \
            {params.launcher:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule pretrain_train:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        mix=manifests("pretrain.mix"),
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
            --mix {input.mix:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
