"""
finetune: question and answer pairs from the corpus, and supervised fine-tuning on them.

REQUIRED INPUTS:

    results/{variant}/corpus/write/{shard}.manifest.json
    the manifest of the model that each model of `models` is made from: results/{variant}/pretrain/train/manifest.json for `base`

OUTPUTS:

    results/{variant}/finetune/pairs/manifest.json            training pairs, and held-out questions with choices
    results/{variant}/finetune/train/{model}.manifest.json    {model}/: the fine-tuned model, and its loss at every step
"""


rule finetune_pairs:
    input:
        corpus=manifests("corpus.write"),
        index=manifests("decontaminate.index"),
    output:
        manifest="results/{variant}/finetune/pairs/manifest.json",
    log:
        "logs/{variant}/finetune/pairs.log",
    benchmark:
        "results/{variant}/benchmarks/finetune/pairs.tsv"
    conda:
        "../envs/train.yaml"
    params:
        fingerprint=fingerprint("finetune.pairs"),
        corpus=manifest_ranges("corpus.write"),
        index=manifest_option("--index", "decontaminate.index"),
    shell:
        """
        python -m crawl2llm.stages.finetune.pairs \
            --config {params.fingerprint:q} \
            --corpus {params.corpus:q} \
            {params.index:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule finetune_train:
    input:
        model=parent,
        pairs=manifest("finetune.pairs"),
    output:
        manifest="results/{variant}/finetune/train/{model}.manifest.json",
    log:
        "logs/{variant}/finetune/train/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/finetune/train/{model}.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # as in pretrain_train
    threads: training_threads("finetune.train")
    resources:
        card=gpu_count("finetune.train"),
    params:
        fingerprint=fingerprint("finetune.train"),
        launcher=placement("finetune.train", placement_options.LAUNCHER),
        placement=placement("finetune.train"),
    shell:
        """
        exec python -m crawl2llm.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            crawl2llm.stages.finetune.train \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
