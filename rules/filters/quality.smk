"""
quality: which of the crawl's documents look like the curated sources.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/quality/train/manifest.json            the classifier and its held-out ROC-AUC
    results/{variant}/quality/score/{shard}.manifest.json    its probability for each document
    results/{variant}/quality/select/manifest.json           verdicts under quality.select

and, where the config asks for them:

    results/{variant}/quality/ngrams/manifest.json                   the n-grams that the classifier goes by
    results/{variant}/quality/fasttext/{shard}.manifest.json         scores of ready fastText models
    results/{variant}/quality/transformers/{shard}.manifest.json     scores of ready classifiers of transformers
    results/{variant}/quality/lm/manifest.json                       KenLM language models of curated documents
    results/{variant}/quality/kenlm/{shard}.manifest.json            perplexities
    results/{variant}/quality/calibrate/manifest.json                quantiles.json: how each scorer's scores are spread
    results/{variant}/quality/combine/{shard}.manifest.json          one score for each document, its bucket, what it fails
"""


rule quality_train:
    input:
        documents=manifests("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/train/manifest.json",
    log:
        "logs/{variant}/quality/train.log",
    benchmark:
        "results/{variant}/benchmarks/quality/train.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.train"),
        documents=manifest_ranges("ingest.extract"),
        verdicts=verdicts_before("quality", ranged=True),
        edits=edits("quality", ranged=True),
    shell:
        """
        python -m crawl2llm.filters.quality.train \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --verdicts {params.verdicts:q} \
            --edits {params.edits:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_score:
    input:
        model=manifest("quality.train"),
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/score/{shard}.manifest.json",
    log:
        "logs/{variant}/quality/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/quality/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("quality.score")
    params:
        fingerprint=fingerprint("quality.score"),
        also=further_results("quality.score"),
    shell:
        """
        python -m crawl2llm.filters.quality.score \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_ngrams:
    input:
        model=manifest("quality.train"),
        documents=manifests("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/ngrams/manifest.json",
    log:
        "logs/{variant}/quality/ngrams.log",
    benchmark:
        "results/{variant}/benchmarks/quality/ngrams.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.ngrams"),
        documents=manifest_ranges("ingest.extract"),
        verdicts=verdicts_before("quality", ranged=True),
        edits=edits("quality", ranged=True),
    shell:
        """
        python -m crawl2llm.filters.quality.ngrams \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --documents {params.documents:q} \
            --verdicts {params.verdicts:q} \
            --edits {params.edits:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_fasttext:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/fasttext/{shard}.manifest.json",
    log:
        "logs/{variant}/quality/fasttext/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/quality/fasttext/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("quality.fasttext")
    params:
        fingerprint=fingerprint("quality.fasttext"),
        also=further_results("quality.fasttext"),
    shell:
        """
        python -m crawl2llm.filters.quality.fasttext \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_transformers:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
    output:
        manifest="results/{variant}/quality/transformers/{shard}.manifest.json",
    log:
        "logs/{variant}/quality/transformers/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/quality/transformers/{shard}.tsv"
    conda:
        "../../envs/evaluate.yaml"
    threads: setting("quality.transformers", "threads")
    resources:
        card=gpu_count("quality.transformers"),
    params:
        fingerprint=fingerprint("quality.transformers"),
        also=further_results("quality.transformers"),
        placement=placement("quality.transformers"),
    shell:
        """
        python -m crawl2llm.filters.quality.transformers \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_lm:
    input:
        documents=manifests("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
        languages=language_scores("quality"),
    output:
        manifest="results/{variant}/quality/lm/manifest.json",
    log:
        "logs/{variant}/quality/lm.log",
    benchmark:
        "results/{variant}/benchmarks/quality/lm.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.lm"),
        documents=manifest_ranges("ingest.extract"),
        verdicts=verdicts_before("quality", ranged=True),
        edits=edits("quality", ranged=True),
        languages=language_scores("quality", ranged=True),
        placement=placement("quality.lm"),
    shell:
        """
        python -m crawl2llm.filters.quality.lm \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --verdicts {params.verdicts:q} \
            --edits {params.edits:q} \
            --languages {params.languages:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_kenlm:
    input:
        lm=manifest("quality.lm"),
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("quality"),
        edits=edits("quality"),
        languages=language_scores("quality"),
    output:
        manifest="results/{variant}/quality/kenlm/{shard}.manifest.json",
    log:
        "logs/{variant}/quality/kenlm/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/quality/kenlm/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("quality.kenlm")
    params:
        fingerprint=fingerprint("quality.kenlm"),
        also=further_results("quality.kenlm"),
    shell:
        """
        python -m crawl2llm.filters.quality.kenlm \
            --config {params.fingerprint:q} \
            --lm {input.lm:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --languages {input.languages:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_calibrate:
    input:
        model=manifest("quality.train"),
        lm=manifest("quality.lm"),
        trained=manifests("quality.score"),
        fasttext=manifests("quality.fasttext"),
        transformers=manifests("quality.transformers"),
        kenlm=manifests("quality.kenlm"),
    output:
        manifest="results/{variant}/quality/calibrate/manifest.json",
    log:
        "logs/{variant}/quality/calibrate.log",
    benchmark:
        "results/{variant}/benchmarks/quality/calibrate.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.calibrate"),
        scores=manifest_ranges("quality.score", "quality.fasttext", "quality.transformers", "quality.kenlm"),
    shell:
        """
        python -m crawl2llm.filters.quality.calibrate \
            --config {params.fingerprint:q} \
            --scores {params.scores:q} \
            --model {input.model:q} \
            --lm {input.lm:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_combine:
    input:
        calibration=manifest("quality.calibrate"),
        trained=manifest("quality.score"),
        fasttext=manifest("quality.fasttext"),
        transformers=manifest("quality.transformers"),
        kenlm=manifest("quality.kenlm"),
    output:
        manifest="results/{variant}/quality/combine/{shard}.manifest.json",
    log:
        "logs/{variant}/quality/combine/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/quality/combine/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("quality.combine")
    params:
        fingerprint=fingerprint("quality.combine"),
        also=further_results("quality.combine"),
    shell:
        """
        python -m crawl2llm.filters.quality.combine \
            --config {params.fingerprint:q} \
            --calibration {input.calibration:q} \
            --scores {input.trained:q} {input.fasttext:q} {input.transformers:q} {input.kenlm:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule quality_select:
    input:
        signals=manifests("quality.score"),
        languages=manifests_if_needed("language.score", "quality.select"),
        combined=manifests("quality.combine"),
    output:
        manifest="results/{variant}/quality/select/manifest.json",
    log:
        "logs/{variant}/quality/select.log",
    benchmark:
        "results/{variant}/benchmarks/quality/select.tsv"
    conda:
        "../../envs/data.yaml"
    params:
        fingerprint=fingerprint("quality.select"),
        signals=manifest_ranges("quality.score"),
        languages=manifests_if_needed("language.score", "quality.select", ranged=True),
        combined=manifest_ranges("quality.combine"),
    shell:
        """
        python -m crawl2llm.filters.quality.select \
            --config {params.fingerprint:q} \
            --signals {params.signals:q} \
            --languages {params.languages:q} \
            --combined {params.combined:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
