"""boilerplate: lines that are on many pages of their host, taken out of documents."""


rule boilerplate_count:
    """On how many documents of its host each line is."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("boilerplate"),
        edits=edits("boilerplate"),
    output:
        result("boilerplate.count"),
    shell:
        PROGRAM


rule boilerplate_frequent:
    """The lines that are on many documents of their host, over all shards."""
    input:
        counts=manifests("boilerplate.count"),
    output:
        result("boilerplate.frequent"),
    shell:
        PROGRAM


rule boilerplate_score:
    """spans/{shard}.parquet: what is taken out; what is left."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("boilerplate"),
        edits=edits("boilerplate"),
        frequent=manifests("boilerplate.frequent"),
    output:
        result("boilerplate.score"),
    shell:
        PROGRAM


rule boilerplate_select:
    """Verdicts under boilerplate.select."""
    input:
        signals=manifest("boilerplate.score"),
    output:
        result("boilerplate.select"),
    shell:
        PROGRAM
