"""language: which language a document is in, and which documents stay."""


rule language_score:
    """fastText's best language and its probability."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("language"),
        edits=edits("language"),
    output:
        result("language.score"),
    shell:
        PROGRAM


rule language_compare:
    """What other models find, and the script."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("language"),
        edits=edits("language"),
        languages=manifest("language.score"),
    output:
        result("language.compare"),
    shell:
        PROGRAM


rule language_select:
    """Verdicts under language.select."""
    input:
        signals=manifest("language.score"),
        compared=manifests_if_needed("language.compare", by="language.select"),
    output:
        result("language.select"),
    shell:
        PROGRAM
