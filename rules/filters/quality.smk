"""quality: which of the crawl's documents look like the curated sources."""


rule quality_train:
    """The classifier and its held-out ROC-AUC."""
    input:
        documents=manifests("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        result("quality.train"),
    shell:
        PROGRAM


rule quality_score:
    """The classifier's probability for each document."""
    input:
        model=manifest("quality.train"),
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        result("quality.score"),
    shell:
        PROGRAM


rule quality_ngrams:
    """The n-grams that the classifier goes by."""
    input:
        model=manifest("quality.train"),
        documents=manifests("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        result("quality.ngrams"),
    shell:
        PROGRAM


rule quality_fasttext:
    """Scores of ready fastText models."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        result("quality.fasttext"),
    shell:
        PROGRAM


rule quality_transformers:
    """Scores of ready classifiers of transformers."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        result("quality.transformers"),
    shell:
        PROGRAM


rule quality_lm:
    """KenLM language models of curated documents."""
    input:
        documents=manifests("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
        languages=manifests_if_needed("language.score", by="quality.lm"),
    output:
        result("quality.lm"),
    shell:
        PROGRAM


rule quality_kenlm:
    """Perplexities of each document."""
    input:
        lm=manifest("quality.lm"),
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
        languages=manifests_if_needed("language.score", by="quality.kenlm"),
    output:
        result("quality.kenlm"),
    shell:
        PROGRAM


rule quality_calibrate:
    """quantiles.json: how each scorer's scores are spread."""
    input:
        model=manifest("quality.train"),
        lm=manifest("quality.lm"),
        scores=manifests("quality.score", "quality.fasttext", "quality.transformers", "quality.kenlm"),
    output:
        result("quality.calibrate"),
    shell:
        PROGRAM


rule quality_combine:
    """One score for each document, its bucket, what it fails."""
    input:
        calibration=manifest("quality.calibrate"),
        scores=manifest("quality.score", "quality.fasttext", "quality.transformers", "quality.kenlm"),
    output:
        result("quality.combine"),
    shell:
        PROGRAM


rule quality_select:
    """Verdicts under quality.select."""
    input:
        signals=manifests("quality.score"),
        languages=manifests_if_needed("language.score", by="quality.select"),
        combined=manifests("quality.combine"),
    output:
        result("quality.select"),
    shell:
        PROGRAM
