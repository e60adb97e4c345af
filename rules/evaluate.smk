"""
evaluate: held-out loss, question answering and samples of each model.

REQUIRED INPUTS:

    results/{variant}/pretrain/train/manifest.json            of the model `base`
    results/{variant}/finetune/train/{model}.manifest.json    of each other model
    results/{variant}/finetune/pairs/manifest.json
    results/{variant}/tokenize/encode/{shard}.manifest.json

OUTPUTS:

    results/{variant}/evaluate/model/{model}.manifest.json    {model}.evaluation.json and {model}.samples.jsonl
"""


rule evaluate_model:
    input:
        model=model,
        pairs=manifest("finetune.pairs"),
        tokens=manifests("tokenize.encode"),
    output:
        manifest="results/{variant}/evaluate/model/{model}.manifest.json",
    log:
        "logs/{variant}/evaluate/model/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/model/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: config["evaluate"]["model"]["threads"]
    params:
        fingerprint=fingerprint("evaluate.model"),
        placement=placement("evaluate.model"),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        python -m scripts.evaluate.model \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            --tokens {params.tokens:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
