"""
evaluate: held-out loss, question answering and samples of the pretrained and of the fine-tuned model.

REQUIRED INPUTS:

    results/{variant}/{pretrain,finetune}/train/manifest.json
    results/{variant}/finetune/pairs/manifest.json
    results/{variant}/tokenize/encode/{shard}.manifest.json

OUTPUTS:

    results/{variant}/evaluate/model/{model}.manifest.json    {model}.evaluation.json and {model}.samples.jsonl
"""


rule evaluate_model:
    input:
        model=branch(
            evaluate("{model} == 'pretrain'"), then=manifest("pretrain.train"), otherwise=manifest("finetune.train")
        ),
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
        tokens=ranged("tokenize.encode"),
    shell:
        """
        python -m scripts.evaluate.model \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            --tokens {params.tokens:q} \
            --batch-size {config[evaluate][model][batch_size]:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
