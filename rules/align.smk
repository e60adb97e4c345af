"""
align: preferences and prompts, reward models, and models that are aligned by them.

REQUIRED INPUTS:

    results/{variant}/finetune/pairs/manifest.json
    the manifest of the model that each model of `models` is made from, and of the one that align.pairs.from names
    for align_train also those of the reward models that its rewards name

OUTPUTS:

    results/{variant}/align/pairs/manifest.json            preferences, labelled answers or prompts, to train on and held out
    results/{variant}/align/reward/{model}.manifest.json   {model}/: a model that scores answers, and its loss at every step
    results/{variant}/align/train/{model}.manifest.json    {model}/: the aligned model, and its loss at every step
"""


rule align_pairs:
    input:
        pairs=manifest("finetune.pairs"),
        model=answering_model,
        index=manifests("decontaminate.index"),
    output:
        manifest="results/{variant}/align/pairs/manifest.json",
    log:
        "logs/{variant}/align/pairs.log",
    benchmark:
        "results/{variant}/benchmarks/align/pairs.tsv"
    conda:
        "../envs/train.yaml"
    resources:
        card=gpu_count("align.pairs"),
    params:
        fingerprint=fingerprint("align.pairs"),
        model=answering_model_option,
        index=manifest_option("--index", "decontaminate.index"),
        placement=placement("align.pairs"),
    shell:
        """
        python -m crawl2llm.stages.align.pairs \
            --config {params.fingerprint:q} \
            --pairs {input.pairs:q} \
            {params.model:q} \
            {params.index:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule align_reward:
    input:
        model=parent,
        pairs=manifest("align.pairs"),
    output:
        manifest="results/{variant}/align/reward/{model}.manifest.json",
    log:
        "logs/{variant}/align/reward/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/align/reward/{model}.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # as in pretrain_train
    threads: training_threads("align.reward")
    resources:
        card=gpu_count("align.reward"),
    params:
        fingerprint=fingerprint("align.reward"),
        launcher=placement("align.reward", placement_options.LAUNCHER),
        placement=placement("align.reward"),
    shell:
        """
        exec python -m crawl2llm.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            crawl2llm.stages.align.reward \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule align_train:
    input:
        model=parent,
        pairs=manifest("align.pairs"),
        rewards=reward_models("align.reward"),
    output:
        manifest="results/{variant}/align/train/{model}.manifest.json",
    log:
        "logs/{variant}/align/train/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/align/train/{model}.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # as in pretrain_train
    threads: training_threads("align.train")
    resources:
        card=gpu_count("align.train"),
    params:
        fingerprint=fingerprint("align.train"),
        launcher=placement("align.train", placement_options.LAUNCHER),
        placement=placement("align.train"),
    shell:
        """
        exec python -m crawl2llm.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            crawl2llm.stages.align.train \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            --rewards {input.rewards:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
