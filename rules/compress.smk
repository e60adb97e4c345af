"""
compress: models that are smaller than the one that they are made from.

REQUIRED INPUTS:

    the manifest of the model that each model of `models` is made from: results/{variant}/pretrain/train/manifest.json for `base`

OUTPUTS:

    results/{variant}/compress/quantize/{model}.manifest.json    {model}/: the model with its weights in eight or four bits
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
