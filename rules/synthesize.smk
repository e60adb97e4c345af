"""
synthesize: texts that a model behind an OpenAI-compatible endpoint writes of documents of a corpus that exists.

REQUIRED INPUTS:

    what `seeds` names: results of corpus.write of an earlier run or of another variant, or files (part of the fingerprint)

OUTPUTS:

    results/{variant}/synthesize/rephrase/manifest.json       the same in other words; only where a source is of it
    results/{variant}/synthesize/seed/manifest.json           new texts on the subject of a page; only where a source is of it
"""


rule synthesize_rephrase:
    input:
        seeds=seed_corpora("synthesize.rephrase"),
    output:
        manifest="results/{variant}/synthesize/rephrase/manifest.json",
    log:
        "logs/{variant}/synthesize/rephrase.log",
    benchmark:
        "results/{variant}/benchmarks/synthesize/rephrase.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("synthesize.rephrase"),
        placement=placement("synthesize.rephrase"),
    shell:
        """
        python -m crawl2llm.stages.synthesize.rephrase \
            --config {params.fingerprint:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule synthesize_seed:
    input:
        seeds=seed_corpora("synthesize.seed"),
    output:
        manifest="results/{variant}/synthesize/seed/manifest.json",
    log:
        "logs/{variant}/synthesize/seed.log",
    benchmark:
        "results/{variant}/benchmarks/synthesize/seed.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("synthesize.seed"),
        placement=placement("synthesize.seed"),
    shell:
        """
        python -m crawl2llm.stages.synthesize.seed \
            --config {params.fingerprint:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
