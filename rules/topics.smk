"""topics: what documents are about, and what each filter takes away of it; where the config asks for clusters."""


rule topics_train:
    """topics.json and weights.npz: topics of a sample; map.parquet: a map of it."""
    input:
        documents=manifests("ingest.extract"),
        languages=manifests_if_needed("language.score", by="topics.train"),
    output:
        result("topics.train"),
    shell:
        PROGRAM


rule topics_score:
    """The topic of each document."""
    input:
        documents=manifest("ingest.extract"),
        model=manifest("topics.train"),
        languages=manifests_if_needed("language.score", by="topics.score"),
    output:
        result("topics.score"),
    shell:
        PROGRAM


rule topics_count:
    """Documents of each topic that got to each filter, and those that it dropped."""
    input:
        topics=manifest("topics.score"),
        verdicts=verdicts(),
    output:
        result("topics.count"),
    shell:
        PROGRAM
