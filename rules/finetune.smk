"""
finetune: question and answer pairs from the corpus, and supervised fine-tuning on them.

REQUIRED INPUTS:

    results/{variant}/corpus/write/{shard}.manifest.json
    results/{variant}/pretrain/train/manifest.json

OUTPUTS:

    results/{variant}/finetune/pairs/manifest.json    training pairs, and held-out questions with choices
    results/{variant}/finetune/train/manifest.json    the fine-tuned model, and its loss at every step
"""


rule finetune_pairs:
    input:
        corpus=manifests("corpus.write"),
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
        corpus=ranged("corpus.write"),
    shell:
        """
        python -m scripts.finetune.pairs \
            --config {params.fingerprint:q} \
            --corpus {params.corpus:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule finetune_train:
    input:
        model=manifest("pretrain.train"),
        pairs=manifest("finetune.pairs"),
    output:
        manifest="results/{variant}/finetune/train/manifest.json",
    log:
        "logs/{variant}/finetune/train.log",
    benchmark:
        "results/{variant}/benchmarks/finetune/train.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # as in pretrain_train
    threads: config["finetune"]["train"]["processes"] * config["finetune"]["train"]["threads"]
    params:
        fingerprint=fingerprint("finetune.train"),
    shell:
        """
        exec python -m scripts.common.launch \
            {IMAGE:q} \
            scripts.finetune.train \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            --processes {config[finetune][train][processes]:q} \
            --activation-checkpointing {config[finetune][train][activation_checkpointing]:q} \
            --checkpoint-every {config[finetune][train][checkpoint_every]:q} \
            --max-skipped-steps {config[finetune][train][max_skipped_steps]:q} \
            --tensorboard {config[finetune][train][tensorboard]:q} \
            --wandb {config[finetune][train][wandb]:q} \
            --wandb-project {config[finetune][train][wandb_project]:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
