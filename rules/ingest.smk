"""ingest: from crawl files to documents."""


rule ingest_list:
    """The remote files of every shard; only if a source has any."""
    output:
        result("ingest.list"),
    localrule: True  # the login node has a network, and compute nodes may have none
    params:
        access=source_access,
        max_missing_files=max_missing_files,
    shell:
        PROGRAM


rule ingest_fetch:
    """Copies of the remote files of a shard; only if ingest.fetch.enabled."""
    input:
        list=manifests("ingest.list"),
    output:
        result("ingest.fetch"),
    localrule: True  # the login node has a network, and compute nodes may have none
    params:
        access=source_access,
    shell:
        PROGRAM


rule ingest_extract:
    """Documents, and the dropped records with a reason."""
    input:
        crawl=manifests("crawl.render"),
        synthesized=manifests("synthesize.rephrase", "synthesize.seed"),
        list=manifests("ingest.list"),
        fetched=manifest("ingest.fetch"),
    output:
        result("ingest.extract"),
    params:
        access=source_access,
        sources=sources_of_variant,  # thousands of names are longer than a command line takes
    shell:
        PROGRAM


rule ingest_check:
    """Ids are unique over all shards; repeated.parquet: copies of records."""
    input:
        documents=manifests("ingest.extract"),
    output:
        result("ingest.check"),
    shell:
        PROGRAM
