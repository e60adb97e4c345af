"""corpus: which documents are held out, and the survivors' text, written once, shuffled and split."""


rule corpus_split:
    """Which documents are for validation."""
    input:
        documents=manifests("ingest.extract"),
        verdicts=verdicts(),
    output:
        result("corpus.split"),
    params:
        # The verdicts of dedup wait for these
        signals=manifests("dedup.signature"),
        exact=manifests("dedup.exact"),
        pairs=manifests("dedup.verify"),
    shell:
        PROGRAM


# Of main in every variant: what all of them are measured on.
rule corpus_reference:
    """Shingles of the documents that main holds out, if variants are compared."""
    input:
        documents=manifests_of_main("ingest.extract"),
        edits=edits_of_main(),
        split=manifests_of_main("corpus.split"),
    output:
        result("corpus.reference"),
    shell:
        PROGRAM


rule corpus_heldout:
    """Verdicts on the training documents that are like those that main holds out."""
    input:
        documents=manifest("ingest.extract"),
        edits=edits(),
        split=manifest("corpus.split"),
        reference=manifest("corpus.reference"),
    output:
        result("corpus.heldout"),
    shell:
        PROGRAM


rule corpus_write:
    """Train, validation, and the table of dropped documents."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts(),
        edits=edits(),
        split=manifest("corpus.split"),
        heldout=manifest("corpus.heldout"),
    output:
        result("corpus.write"),
    shell:
        PROGRAM
