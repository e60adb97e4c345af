"""
crawl: the demo's crawl of this machine's own documentation, so that a complete run needs no network.

REQUIRED INPUTS:

    scripts/crawl2llm/stages/crawl/pages/                     the project's own pages (part of its fingerprint)

OUTPUTS:

    results/{variant}/crawl/render/manifest.json              WARC files, curated.jsonl and gold.jsonl beside it
"""


rule crawl_render:
    output:
        manifest="results/{variant}/crawl/render/manifest.json",
    log:
        "logs/{variant}/crawl/render.log",
    benchmark:
        "results/{variant}/benchmarks/crawl/render.tsv"
    conda:
        "../envs/data.yaml"
    threads: setting("crawl.render", "workers")
    params:
        fingerprint=fingerprint("crawl.render"),
    shell:
        """
        python -m crawl2llm.stages.crawl.render \
            --config {params.fingerprint:q} \
            --workers {threads:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
