"""paragraphs: removes paragraphs that are repeated in the whole corpus, except the first occurrence of each."""


rule paragraphs_hash:
    """Hashes of the paragraphs of each document."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("paragraphs"),
        edits=edits("paragraphs"),
    output:
        result("paragraphs.hash"),
    shell:
        PROGRAM


rule paragraphs_repeated:
    """The paragraphs that are repeated, over all shards, and where each stays."""
    input:
        hashes=manifests("paragraphs.hash"),
    output:
        result("paragraphs.repeated"),
    shell:
        PROGRAM


rule paragraphs_score:
    """spans/{shard}.parquet: what is taken out; what is left."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("paragraphs"),
        edits=edits("paragraphs"),
        hashes=manifest("paragraphs.hash"),
        repeated=manifests("paragraphs.repeated"),
    output:
        result("paragraphs.score"),
    shell:
        PROGRAM


rule paragraphs_select:
    """Verdicts under paragraphs.select."""
    input:
        signals=manifest("paragraphs.score"),
    output:
        result("paragraphs.select"),
    shell:
        PROGRAM
