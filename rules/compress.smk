"""
compress: models that are smaller than the one that they are made from.

REQUIRED INPUTS:

    results/{variant}/tokenize/encode/{shard}.manifest.json
    the manifest of the model that each model of `models` is made from: results/{variant}/pretrain/train/manifest.json for `base`

OUTPUTS:

    results/{variant}/compress/prune/{model}.manifest.json       {model}/: the pruned model, and its loss at every step
    results/{variant}/compress/quantize/{model}.manifest.json    {model}/: the model with its weights in eight or four bits
"""


rule compress_prune:
    input:
        model=parent,
        tokens=manifests("tokenize.encode"),
    output:
        manifest="results/{variant}/compress/prune/{model}.manifest.json",
    log:
        "logs/{variant}/compress/prune/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/compress/prune/{model}.tsv"
    conda:
        "../envs/train.yaml"
    container:
        None  # as in pretrain_train
    threads: cores("compress.prune")
    params:
        fingerprint=fingerprint("compress.prune"),
        launcher=placement("compress.prune", options.LAUNCHER),
        placement=placement("compress.prune"),
        tokens=ranged("tokenize.encode"),
    shell:
        """
        exec python -m scripts.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            scripts.compress.prune \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --tokens {params.tokens:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule compress_quantize:
    input:
        model=parent,
    output:
        manifest="results/{variant}/compress/quantize/{model}.manifest.json",
    log:
        "logs/{variant}/compress/quantize/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/compress/quantize/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("compress.quantize"),
    shell:
        """
        python -m scripts.compress.quantize \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
