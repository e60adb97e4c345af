"""
ingest: from crawl files to documents.

REQUIRED INPUTS:

    the files of ingest.extract.sources, spread over the shards by a hash of their names
    results/{variant}/crawl/render/manifest.json    where a source is the demo's crawl

OUTPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json    documents, and the dropped records with a reason
    results/{variant}/ingest/check/manifest.json              ids are unique over all shards; repeated.parquet: copies of records
"""


rule ingest_extract:
    input:
        crawl=manifests("crawl.render"),
    output:
        manifest="results/{variant}/ingest/extract/{shard}.manifest.json",
    log:
        "logs/{variant}/ingest/extract/{shard}.log",
    benchmark:
        "results/{variant}/benchmarks/ingest/extract/{shard}.tsv"
    conda:
        "../envs/data.yaml"
    threads: at_once("ingest.extract")
    params:
        fingerprint=fingerprint("ingest.extract"),
        also=also("ingest.extract"),
        sources=SOURCES,  # thousands of names are longer than a command line takes
    shell:
        """
        python -m scripts.ingest.extract \
            --config {params.fingerprint:q} \
            --crawl {input.crawl:q} \
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
        documents=ranged("ingest.extract"),
    shell:
        """
        python -m scripts.ingest.check \
            --config {params.fingerprint:q} \
            --documents {params.documents:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
