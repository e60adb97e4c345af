"""
report: the page that shows a run.

REQUIRED INPUTS:

    the manifests of every step. Beside them, where they are: metrics.jsonl and Snakemake's benchmark files

OUTPUTS:

    results/{variant}/report/render/manifest.json    funnel.json and counts.json: the numbers that the input alone decides
    results/{variant}/report/render/report.html      the page; it shows times too, so no manifest lists it
    results/{variant}/report/render/figures/*.svg    its key figures; `snakemake --report` shows them and the page
    results/{variant}/report/now/report.html         by `snakemake report_now`: the page of whatever is there
"""


rule report_render:
    input:
        crawl_render=manifests("crawl.render", of="ingest.extract"),
        ingest_extract=manifests("ingest.extract"),
        ingest_check=manifests("ingest.check"),
        language_score=manifests("language.score"),
        language_select=manifests("language.select"),
        heuristics_score=manifests("heuristics.score"),
        heuristics_select=manifests("heuristics.select"),
        dedup_signature=manifests("dedup.signature"),
        dedup_exact=manifests("dedup.exact"),
        dedup_band=manifests("dedup.band"),
        dedup_verify=manifests("dedup.verify"),
        dedup_select=manifests("dedup.select"),
        quality_train=manifests("quality.train"),
        quality_score=manifests("quality.score"),
        quality_select=manifests("quality.select"),
        corpus_split=manifests("corpus.split"),
        corpus_write=manifests("corpus.write"),
        tokenize_train=manifests("tokenize.train"),
        tokenize_encode=manifests("tokenize.encode"),
        pretrain_train=manifests("pretrain.train"),
        finetune_pairs=manifests("finetune.pairs"),
        finetune_train=manifests("finetune.train"),
        evaluate_model=manifests("evaluate.model"),
    output:
        manifest="results/{variant}/report/render/manifest.json",
        page=report(
            "results/{variant}/report/render/report.html",
            caption="report/page.rst",
            category="{variant}",
            labels={"shows": "the whole run"},
        ),
        funnel=report(
            "results/{variant}/report/render/figures/funnel.svg",
            caption="report/funnel.rst",
            category="{variant}",
            labels={"shows": "documents kept and dropped"},
        ),
        loss=report(
            "results/{variant}/report/render/figures/loss.svg",
            caption="report/loss.rst",
            category="{variant}",
            labels={"shows": "loss"},
        ),
        bits=report(
            "results/{variant}/report/render/figures/bits-per-byte.svg",
            caption="report/bits.rst",
            category="{variant}",
            labels={"shows": "bits per byte"},
        ),
    log:
        "logs/{variant}/report/render.log",
    benchmark:
        "results/{variant}/benchmarks/report/render.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("report.render"),
        manifests=ranged(*list(steps.STEPS)[:-1]),
    shell:
        """
        python -m scripts.report.render \
            --config {params.fingerprint:q} \
            --complete-config {COMPLETE:q} \
            --manifests {params.manifests:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


# No input and no output: it always runs when it is asked for, and shows what is there. It is part of no other target.
rule report_now:
    localrule: True
    conda:
        "../envs/data.yaml"
    params:
        results=expand("results/{variant}", variant=VARIANTS),
    shell:
        """
        python -m scripts.report.now --results {params.results:q} --configfile {COMPLETE:q}
        """
