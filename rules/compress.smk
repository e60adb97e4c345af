"""
compress: models that are smaller than the one that they are made from, and files to give away.

REQUIRED INPUTS:

    results/{variant}/tokenize/encode/{shard}.manifest.json    for compress.prune, for compress.quantize by gptq and awq, and for exports
    the manifest of the model that each model of `models` is made from: results/{variant}/pretrain/train/manifest.json for `base`
    for an export's card also the manifests of ingest, every filter, corpus, tokenize.train, finetune.pairs, evaluate.items and evaluate.model

OUTPUTS:

    results/{variant}/compress/prune/{model}.manifest.json       {model}/: the pruned model, and its loss at every step
    results/{variant}/compress/quantize/{model}.manifest.json    {model}/: the model with its weights in eight or four bits
    results/{variant}/compress/export/{model}.manifest.json      {model}/: safetensors, config and tokenizer, or GGUF files
    results/{variant}/compress/export/{model}/README.md          its card; it names the machine too, so no manifest lists it
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
    threads: training_threads("compress.prune")
    resources:
        card=gpu_count("compress.prune"),
    params:
        fingerprint=fingerprint("compress.prune"),
        launcher=placement("compress.prune", placement_options.LAUNCHER),
        placement=placement("compress.prune"),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        exec python -m crawl2llm.training.launch \
            {params.launcher:q} \
            {IMAGE:q} \
            crawl2llm.stages.compress.prune \
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
        tokens=manifests_for_calibration("tokenize.encode"),
    output:
        manifest="results/{variant}/compress/quantize/{model}.manifest.json",
    log:
        "logs/{variant}/compress/quantize/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/compress/quantize/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: calibration_threads
    params:
        fingerprint=fingerprint("compress.quantize"),
        tokens=manifests_for_calibration("tokenize.encode", ranged=True),
    shell:
        """
        python -m crawl2llm.stages.compress.quantize \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --tokens {params.tokens:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule compress_export:
    input:
        models=lineage(),
        evaluations=lineage("evaluate.model"),
        documents=manifests("ingest.extract"),
        verdicts=verdicts(),
        split=manifest("corpus.split"),
        corpus=manifests("corpus.write"),
        tokenizer=manifest("tokenize.train"),
        tokens=manifests("tokenize.encode"),
        pairs=manifest("finetune.pairs"),
        made=manifest("evaluate.items"),
    output:
        manifest="results/{variant}/compress/export/{model}.manifest.json",
    log:
        "logs/{variant}/compress/export/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/compress/export/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: setting("compress.export", "threads")
    params:
        fingerprint=fingerprint("compress.export"),
        documents=manifest_ranges("ingest.extract"),
        verdicts=verdicts(ranged=True),
        corpus=manifest_ranges("corpus.split", "corpus.write"),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        python -m crawl2llm.stages.compress.export \
            --config {params.fingerprint:q} \
            --models {input.models:q} \
            --evaluations {input.evaluations:q} \
            --record {params.documents:q} {params.verdicts:q} {params.corpus:q} {input.tokenizer:q} {input.pairs:q} {input.made:q} \
            --tokens {params.tokens:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
