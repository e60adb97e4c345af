"""dedup: exact and near duplicates over all shards, each verified, each with the kept document it is a duplicate of."""


rule dedup_signature:
    """Text hash, and MinHash bands of the shingles."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("dedup"),
        edits=edits("dedup"),
    output:
        result("dedup.signature"),
    shell:
        PROGRAM


rule dedup_exact:
    """Byte-equal texts."""
    input:
        signals=manifests("dedup.signature"),
    output:
        result("dedup.exact"),
    shell:
        PROGRAM


rule dedup_band:
    """Candidate pairs of a band."""
    input:
        exact=manifest("dedup.exact"),
    output:
        result("dedup.band"),
    params:
        signals=manifests("dedup.signature"),  # dedup.exact waits for them
    shell:
        PROGRAM


rule dedup_sets:
    """Shingle sets of the documents in candidate pairs."""
    input:
        pairs=manifests("dedup.band"),
        exact=manifest("dedup.exact"),
        signals=manifest("dedup.signature"),
        documents=manifest("ingest.extract"),
        edits=edits("dedup"),
    output:
        result("dedup.sets"),
    shell:
        PROGRAM


rule dedup_verify:
    """Exact Jaccard similarity of every candidate pair."""
    input:
        sets=manifests("dedup.sets"),
    output:
        result("dedup.verify"),
    params:
        pairs=manifests("dedup.band"),  # dedup.sets waits for them
    shell:
        PROGRAM


rule dedup_select:
    """Verdicts under dedup.select."""
    input:
        exact=manifest("dedup.exact"),
        pairs=manifests("dedup.verify"),
    output:
        result("dedup.select"),
    params:
        signals=manifests("dedup.signature"),  # dedup.exact waits for them
    shell:
        PROGRAM


rule dedup_export:
    """Signals and shingle sets of the corpus, if dedup.export.write is true."""
    input:
        documents=manifest("ingest.extract"),
        edits=edits("dedup"),
        signals=manifest("dedup.signature"),
        split=manifest("corpus.split"),
    output:
        result("dedup.export"),
    shell:
        PROGRAM
