"""synthesize: texts that a model behind an OpenAI-compatible endpoint writes of documents of a corpus that exists."""


rule synthesize_rephrase:
    """The same texts in other words; only where a source is of them."""
    input:
        seed_corpora("synthesize.rephrase"),
    output:
        result("synthesize.rephrase"),
    shell:
        PROGRAM


rule synthesize_seed:
    """New texts on the subject of a page; only where a source is of them."""
    input:
        seed_corpora("synthesize.seed"),
    output:
        result("synthesize.seed"),
    shell:
        PROGRAM
