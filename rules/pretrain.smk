"""
pretrain: a causal language model trained from scratch, with DeepSpeed or torch alone, and before that, what it will take.

REQUIRED INPUTS:

    results/{variant}/tokenize/encode/{shard}.manifest.json   of every shard
    results/{variant}/tokenize/train/manifest.json
    results/{variant}/{language,quality,topics}/score/{shard}.manifest.json   of every shard, where pretrain.mix is by one of these

OUTPUTS:

    results/{variant}/pretrain/mix/manifest.json              mix.json and spans.npy: the order of sources, where the config has phases
    results/{variant}/pretrain/rung/{contender}.manifest.json {contender}.json: a variant's loss at a rung, where sweep.halving has any
    results/{variant}/pretrain/halve/manifest.json            halving.json: who goes on after each rung, and why the others stop
    results/{variant}/pretrain/plan/manifest.json             what the training takes: parameters, tokens, operations; memory, hours and price in run.json
    results/{variant}/pretrain/train/manifest.json            model/ and losses.jsonl; metrics.jsonl beside them

Checkpoints live undeclared in checkpoints/, so that a failed or stopped job resumes from the newest.
"""


# Reads no token; where documents are grouped, their ids and sizes.
rule pretrain_mix:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        languages=manifests_for_mix("language.score"),
        scores=manifests_for_mix("quality.score"),
        topics=manifests_for_mix("topics.score"),
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
        languages=manifests_for_mix("language.score", ranged=True),
        scores=manifests_for_mix("quality.score", ranged=True),
        topics=manifests_for_mix("topics.score", ranged=True),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        python -m crawl2llm.stages.pretrain.mix \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --signals {params.languages:q} {params.scores:q} {params.topics:q} \
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
        launcher=placement("pretrain.train", placement_options.LAUNCHER),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        python -m crawl2llm.stages.pretrain.plan \
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


# The training of a variant up to a rung of sweep.halving; all of them in main, each with the placement of its variant.
rule pretrain_rung:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        before=manifests_of_rung_before,
    output:
        manifest="results/{variant}/pretrain/rung/{contender}.manifest.json",
    log:
        "logs/{variant}/pretrain/rung/{contender}.log",
    benchmark:
        "results/{variant}/benchmarks/pretrain/rung/{contender}.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # as pretrain_train
    threads: training_threads("pretrain.rung")
    resources:
        card=contender_gpu_count,
    params:
        fingerprint=fingerprint("pretrain.rung"),
        launcher=contender_placement(placement_options.LAUNCHER),
        placement=contender_placement(),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        exec python -m crawl2llm.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            crawl2llm.stages.pretrain.rung \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --before {input.before:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule pretrain_halve:
    input:
        rungs=manifests("pretrain.rung"),
    output:
        manifest="results/{variant}/pretrain/halve/manifest.json",
    log:
        "logs/{variant}/pretrain/halve.log",
    benchmark:
        "results/{variant}/benchmarks/pretrain/halve.tsv"
    priority: 1
    localrule: True
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("pretrain.halve"),
        rungs=manifest_ranges("pretrain.rung"),
    shell:
        """
        python -m crawl2llm.stages.pretrain.halve \
            --config {params.fingerprint:q} \
            --rungs {params.rungs:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule pretrain_train:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        mix=manifests("pretrain.mix"),
        halving=manifests("pretrain.halve"),
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
    threads: training_threads("pretrain.train")
    resources:
        card=gpu_count("pretrain.train"),
    params:
        fingerprint=fingerprint("pretrain.train"),
        launcher=placement("pretrain.train", placement_options.LAUNCHER),
        placement=placement("pretrain.train"),
        tokens=manifest_ranges("tokenize.encode"),
        trainer=training_program(
            "crawl2llm.stages.pretrain.train", judged="crawl2llm.stages.pretrain.halving.contender"
        ),
    shell:
        """
        exec python -m crawl2llm.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            {params.trainer:q} \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --mix {input.mix:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
