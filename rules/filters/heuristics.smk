"""heuristics: what a document looks like under Gopher's, C4's and FineWeb's rules, and which documents stay."""


rule heuristics_score:
    """Every measure of every document that got here."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("heuristics"),
        edits=edits("heuristics"),
        languages=manifest("language.score"),
    output:
        result("heuristics.score"),
    shell:
        PROGRAM


rule heuristics_calibrate:
    """thresholds.json: the thresholds of each language, from its own distribution."""
    input:
        signals=manifests("heuristics.score"),
        languages=manifests("language.score"),
    output:
        result("heuristics.calibrate"),
    shell:
        PROGRAM


rule heuristics_select:
    """Verdicts under heuristics.select."""
    input:
        signals=manifest("heuristics.score"),
        thresholds=manifests_if_needed("heuristics.calibrate", by="heuristics.select"),
        languages=manifests_if_needed("language.score", by="heuristics.select"),
    output:
        result("heuristics.select"),
    shell:
        PROGRAM
