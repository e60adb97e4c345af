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
    threads: config["pretrain"]["train"]["processes"] * config["pretrain"]["train"]["threads_per_process"]
    params:
        fingerprint=fingerprint("pretrain.train"),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        exec python -m scripts.common.launch \
            --nodes {config[pretrain][train][nodes]:q} \
            --processes {config[pretrain][train][processes]:q} \
            {IMAGE:q} \
            scripts.pretrain.train \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --stage-to={config[pretrain][train][stage_to]:q} \
            --micro-batch {config[pretrain][train][micro_batch]:q} \
            --device {config[pretrain][train][device]:q} \
            --activation-checkpointing {config[pretrain][train][activation_checkpointing]:q} \
            --checkpoint-every {config[pretrain][train][checkpoint_every]:q} \
            --keep-checkpoints {config[pretrain][train][keep_checkpoints]:q} \
            --max-skipped-steps {config[pretrain][train][max_skipped_steps]:q} \
            --log-every {config[pretrain][train][log_every]:q} \
            --tensorboard {config[pretrain][train][tensorboard]:q} \
            --wandb {config[pretrain][train][wandb]:q} \
            --wandb-project {config[pretrain][train][wandb_project]:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
