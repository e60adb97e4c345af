"""
decontaminate: items of evaluation sets, found in documents and taken out. Used where public tasks or files are named.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/decontaminate/index/manifest.json            items.parquet: what is searched for
    results/{variant}/decontaminate/score/{shard}.manifest.json    matches/{shard}.parquet: which item where, and how much of it
    results/{variant}/decontaminate/select/{shard}.manifest.json   verdicts; spans/{shard}.parquet: what is cut; found/{shard}.parquet
"""


rule decontaminate_index:
    output:
        manifest="results/{variant}/decontaminate/index/manifest.json",
    log:
        "logs/{variant}/decontaminate/index.log",
    benchmark:
        "results/{variant}/benchmarks/decontaminate/index.tsv"
    priority: 1  # says what is wrong with the data before hours are spent
    conda:
        "../../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("decontaminate.index"),
    shell:
        """
        python -m crawl2llm.filters.decontaminate.index \
            --config {params.fingerprint:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule decontaminate_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("decontaminate"),
        edits=edits("decontaminate"),
        index=manifest("decontaminate.index"),
    output:
        manifest="results/{variant}/decontaminate/score/{shard}.manifest.json",
    log:
        "logs/{variant}/decontaminate/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/decontaminate/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("decontaminate.score")
    params:
        fingerprint=fingerprint("decontaminate.score"),
        also=further_results("decontaminate.score"),
    shell:
        """
        python -m crawl2llm.filters.decontaminate.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --index {input.index:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule decontaminate_select:
    input:
        signals=manifest("decontaminate.score"),
    output:
        manifest="results/{variant}/decontaminate/select/{shard}.manifest.json",
    log:
        "logs/{variant}/decontaminate/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/decontaminate/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("decontaminate.select")
    params:
        fingerprint=fingerprint("decontaminate.select"),
        also=further_results("decontaminate.select"),
    shell:
        """
        python -m crawl2llm.filters.decontaminate.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
