"""finetune: question and answer pairs from the corpus, and supervised fine-tuning on them."""


rule finetune_pairs:
    """Training pairs, and held-out questions with choices."""
    input:
        corpus=manifests("corpus.write"),
        index=manifests("decontaminate.index"),
    output:
        result("finetune.pairs"),
    shell:
        PROGRAM


rule finetune_train:
    """{model}/: the fine-tuned model, and its loss at every step."""
    input:
        model=parent(),
        pairs=manifest("finetune.pairs"),
    output:
        result("finetune.train"),
    shell:
        TRAINING
