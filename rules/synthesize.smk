"""synthesize: texts that a model behind an OpenAI-compatible endpoint writes of documents of a corpus that exists."""


rule synthesize_rephrase:
    """The same texts in other words; only if a source names them."""
    input:
        seed_corpora("synthesize.rephrase"),
    output:
        result("synthesize.rephrase"),
    shell:
        PROGRAM


rule synthesize_seed:
    """New texts on the subject of a page; only if a source names them."""
    input:
        seed_corpora("synthesize.seed"),
    output:
        result("synthesize.seed"),
    shell:
        PROGRAM
