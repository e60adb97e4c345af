"""substrings: removes long passages that are repeated in the whole corpus, except the first occurrence of each."""


rule substrings_sample:
    """A sample of shorter n-grams of words of each document."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("substrings"),
        edits=edits("substrings"),
    output:
        result("substrings.sample"),
    shell:
        PROGRAM


rule substrings_shared:
    """The n-grams of the sample that are repeated, over all shards."""
    input:
        samples=manifests("substrings.sample"),
    output:
        result("substrings.shared"),
    shell:
        PROGRAM


rule substrings_windows:
    """Hashes of the windows of words that may be repeated."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("substrings"),
        edits=edits("substrings"),
        sample=manifest("substrings.sample"),
        shared=manifests("substrings.shared"),
    output:
        result("substrings.windows"),
    shell:
        PROGRAM


rule substrings_repeated:
    """The windows of words that are repeated, over all shards, and where each stays."""
    input:
        windows=manifests("substrings.windows"),
    output:
        result("substrings.repeated"),
    shell:
        PROGRAM


rule substrings_score:
    """spans/{shard}.parquet: what is taken out; what is left."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("substrings"),
        edits=edits("substrings"),
        sample=manifest("substrings.sample"),
        repeated=manifests("substrings.repeated"),
    output:
        result("substrings.score"),
    shell:
        PROGRAM


rule substrings_select:
    """Verdicts under substrings.select."""
    input:
        signals=manifest("substrings.score"),
    output:
        result("substrings.select"),
    shell:
        PROGRAM
