"""crawl: the demo's crawl of this machine's own documentation, so that a complete run needs no network."""


rule crawl_render:
    """WARC files, curated.jsonl and gold.jsonl beside it."""
    output:
        result("crawl.render"),
    threads: setting("crawl.render", "workers")
    shell:
        PROGRAM
