"""
ingest: from crawl files to documents.

REQUIRED INPUTS:

    the files of ingest.extract.sources, spread over the shards by a hash of their names
    the remote files that they name, where they name such
    results/{variant}/crawl/render/manifest.json    where a source is the demo's crawl
    results/{variant}/synthesize/rephrase/manifest.json, …/seed/manifest.json    where a source is of these

OUTPUTS:

    results/{variant}/ingest/list/manifest.json               the remote files of every shard; only where a source has such
    results/{variant}/ingest/fetch/{shard}.manifest.json      copies of these; only where ingest.fetch.enabled
    results/{variant}/ingest/extract/{shard}.manifest.json    documents, and the dropped records with a reason
    results/{variant}/ingest/check/manifest.json              ids are unique over all shards; repeated.parquet: copies of records
"""


# On the login node, which has a network where compute nodes may have none.
localrules:
    ingest_list,
    ingest_fetch,


rule ingest_list:
    output:
        manifest="results/{variant}/ingest/list/manifest.json",
    log:
        "logs/{variant}/ingest/list.log",
    benchmark:
        "results/{variant}/benchmarks/ingest/list.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("ingest.list"),
        access=source_access,
        missing=missing_files,
    shell:
        """
        python -m crawl2llm.stages.ingest.list \
            --config {params.fingerprint:q} \
            --access {params.access:q} \
            --max-missing-files {params.missing:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule ingest_fetch:
    input:
        listed=manifests("ingest.list"),
    output:
        manifest="results/{variant}/ingest/fetch/{shard}.manifest.json",
    log:
        "logs/{variant}/ingest/fetch/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/ingest/fetch/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("ingest.fetch"),
        also=further_results("ingest.fetch"),
        access=source_access,
        placement=placement("ingest.fetch"),
    shell:
        """
        python -m crawl2llm.stages.ingest.fetch \
            --config {params.fingerprint:q} \
            --list {input.listed:q} \
            --access {params.access:q} \
            {params.placement:q} \
            --also {params.also:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule ingest_extract:
    input:
        crawl=manifests("crawl.render"),
        rephrased=manifests("synthesize.rephrase"),
        seeded=manifests("synthesize.seed"),
        listed=manifests("ingest.list"),
        fetched=manifest("ingest.fetch"),
    output:
        manifest="results/{variant}/ingest/extract/{shard}.manifest.json",
    log:
        "logs/{variant}/ingest/extract/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/ingest/extract/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: shards_at_once("ingest.extract")
    params:
        fingerprint=fingerprint("ingest.extract"),
        access=source_access,
        also=further_results("ingest.extract"),
        sources=SOURCES,  # thousands of names are longer than a command line takes
    shell:
        """
        python -m crawl2llm.stages.ingest.extract \
            --config {params.fingerprint:q} \
            --crawl {input.crawl:q} \
            --synthesized {input.rephrased:q} {input.seeded:q} \
            --list {input.listed:q} \
            --fetched {input.fetched:q} \
            --access {params.access:q} \
            --sources {params.sources:q} {wildcards.variant:q} \
            --also {params.also:q} \
            --at-once {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule ingest_check:
    input:
        documents=manifests("ingest.extract"),
    output:
        manifest="results/{variant}/ingest/check/manifest.json",
    log:
        "logs/{variant}/ingest/check.log",
    benchmark:
        "results/{variant}/benchmarks/ingest/check.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("ingest.check"),
        documents=manifest_ranges("ingest.extract"),
    shell:
        """
        python -m crawl2llm.stages.ingest.check \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
