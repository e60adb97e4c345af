"""tokenize: a tokenizer trained on the corpus, and the corpus as token ids."""


rule tokenize_train:
    """tokenizer.json, as transformers loads it."""
    input:
        corpus=manifests("corpus.write"),
    output:
        result("tokenize.train"),
    threads: 2  # of tokenizers, which counts pairs in as many as it gets; a profile may give more
    shell:
        "RAYON_NUM_THREADS={threads} " + PROGRAM


rule tokenize_compare:
    """Bytes per token by language of a ready tokenizer, and of one trained on the corpus."""
    input:
        tokenizer=manifest("tokenize.train"),
        corpus=manifests("corpus.write"),
        languages=manifests_if_needed("language.score", by="tokenize.compare"),
    output:
        result("tokenize.compare"),
    threads: 2  # as of tokenize.train
    shell:
        "RAYON_NUM_THREADS={threads} " + PROGRAM


rule tokenize_encode:
    """Megatron indexed datasets of both splits, one for each source."""
    input:
        corpus=manifest("corpus.write"),
        tokenizer=manifest("tokenize.train"),
    output:
        result("tokenize.encode"),
    shell:
        "RAYON_NUM_THREADS={threads} " + PROGRAM


rule tokenize_reencode:
    """{split}/{source}/{model}-*: the same datasets in the tokens of a published model."""
    input:
        model=manifest("pretrain.published"),
        corpus=manifests("corpus.write"),
    output:
        result("tokenize.reencode"),
    shell:
        "RAYON_NUM_THREADS={threads} " + PROGRAM
