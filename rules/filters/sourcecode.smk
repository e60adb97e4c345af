"""
sourcecode: source files that nobody wrote to be read, among the documents that are code.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before it

OUTPUTS:

    results/{variant}/sourcecode/score/{shard}.manifest.json    measures of each source file
    results/{variant}/sourcecode/select/{shard}.manifest.json   verdicts under sourcecode.select
"""


rule sourcecode_score:
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("sourcecode"),
        edits=edits("sourcecode"),
    output:
        manifest="results/{variant}/sourcecode/score/{shard}.manifest.json",
    log:
        "logs/{variant}/sourcecode/score/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/sourcecode/score/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("sourcecode.score")
    params:
        fingerprint=fingerprint("sourcecode.score"),
        also=further_results("sourcecode.score"),
    shell:
        """
        python -m crawl2llm.filters.sourcecode.score \
            --config {params.fingerprint:q} \
            --documents {input.documents:q} \
            --verdicts {input.verdicts:q} \
            --edits {input.edits:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule sourcecode_select:
    input:
        signals=manifest("sourcecode.score"),
    output:
        manifest="results/{variant}/sourcecode/select/{shard}.manifest.json",
    log:
        "logs/{variant}/sourcecode/select/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/sourcecode/select/{shard}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: shards_at_once("sourcecode.select")
    params:
        fingerprint=fingerprint("sourcecode.select"),
        also=further_results("sourcecode.select"),
    shell:
        """
        python -m crawl2llm.filters.sourcecode.select \
            --config {params.fingerprint:q} \
            --signals {input.signals:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
