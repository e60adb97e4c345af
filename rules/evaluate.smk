"""
evaluate: tasks from held-out text; held-out loss, the tasks, question answering and samples of each model; all models compared.

REQUIRED INPUTS:

    results/{variant}/pretrain/train/manifest.json            of the model `base`
    results/{variant}/finetune/train/{model}.manifest.json    of each other model
    results/{variant}/finetune/pairs/manifest.json
    results/{variant}/tokenize/encode/{shard}.manifest.json
    results/{variant}/tokenize/train/manifest.json

OUTPUTS:

    results/{variant}/evaluate/items/manifest.json            items.jsonl: the tasks; {unigram,bigram}.items.jsonl: results on them
    results/{variant}/evaluate/model/{model}.manifest.json    {model}.evaluation.json, {model}.{items,heldout,samples}.jsonl
    results/{variant}/evaluate/compare/manifest.json          compare.json: which model is better, by measure
"""


rule evaluate_items:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
    output:
        manifest="results/{variant}/evaluate/items/manifest.json",
    log:
        "logs/{variant}/evaluate/items.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/items.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.items"),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        python -m scripts.evaluate.items \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_model:
    input:
        model=model,
        pairs=manifest("finetune.pairs"),
        tokens=manifests("tokenize.encode"),
        made=manifest("evaluate.items"),
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
            --items {input.made:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_compare:
    input:
        evaluations=manifests("evaluate.model"),
    output:
        manifest="results/{variant}/evaluate/compare/manifest.json",
    log:
        "logs/{variant}/evaluate/compare.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/compare.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.compare"),
        evaluations=ranged("evaluate.model"),
    shell:
        """
        python -m scripts.evaluate.compare \
            --config {params.fingerprint:q} \
            --evaluations {params.evaluations:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
