"""
report: the page that shows a run.

REQUIRED INPUTS:

    the manifests of every step. Beside them, where they are: metrics.jsonl and Snakemake's benchmark files

OUTPUTS:

    results/{variant}/report/render/manifest.json    funnel.json and counts.json: the numbers that the input alone decides
    results/{variant}/report/render/report.html      the page; it shows times too, so no manifest lists it
    results/{variant}/report/render/figures/*.svg    its key figures; `snakemake --report` shows them and the page
    results/{variant}/report/now/report.html         by `snakemake report_now`: the page of what is there so far
"""


rule report_render:
    input:
        manifests=every_step,
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
        manifests=ranged(),
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
