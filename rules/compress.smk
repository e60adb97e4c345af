"""compress: models that are smaller than the one that they are made from, and files to give away."""


rule compress_prune:
    """{model}/: the pruned model, and its loss at every step."""
    input:
        model=parent(),
        tokens=tokens(),
    output:
        result("compress.prune"),
    shell:
        TRAINING


rule compress_merge:
    """{model}/: a model whose weights are averages of those of others."""
    input:
        model=parent(),
        others=other_parents(),
    output:
        result("compress.merge"),
    shell:
        PROGRAM


rule compress_teach:
    """{model}/: the likeliest next tokens of the training text, if a student reads them."""
    input:
        model=model(),
        tokens=tokens(),
    output:
        result("compress.teach"),
    shell:
        PROGRAM


rule compress_distil:
    """{model}/: the model trained by its teacher, and its loss at every step."""
    input:
        model=parent(),
        teacher=other_parents(),
        tokens=tokens(),
        taught=written_teacher(),
    output:
        result("compress.distil"),
    shell:
        TRAINING


rule compress_quantize:
    """{model}/: the model with its weights in eight or four bits."""
    input:
        model=parent(),
        tokens=tokens(by="compress.quantize"),
    output:
        result("compress.quantize"),
    threads: calibration_threads
    shell:
        PROGRAM


rule compress_export:
    """{model}/: safetensors, config and tokenizer, or GGUF files."""
    input:
        models=lineage(),
        evaluations=lineage("evaluate.model"),
        record=join_inputs(
            manifests("ingest.extract"),
            verdicts(),
            manifests("corpus.split", "corpus.write", "tokenize.train", "finetune.pairs", "evaluate.items"),
        ),
        tokens=tokens(),
    output:
        result("compress.export"),
    shell:
        PROGRAM
