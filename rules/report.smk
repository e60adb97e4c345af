"""
report: the page that shows a run.

REQUIRED INPUTS:

    report.whatif: documents, scores, verdicts and tokens
    report.inspect: documents, scores, verdicts and edits
    report.render: the manifests of every step. Beside them, where they are: metrics.jsonl and Snakemake's benchmark files

OUTPUTS:

    results/{variant}/report/whatif/manifest.json    whatif.json: what other thresholds of select steps would keep
    results/{variant}/report/inspect/manifest.json   index.html and a page for each filter, to mark documents on; samples.jsonl
    results/{variant}/report/render/manifest.json    funnel.json and counts.json: the numbers that the input alone decides
    results/{variant}/report/render/report.html      the page; it shows times too, so no manifest lists it
    results/{variant}/report/render/figures/*.svg    its key figures; `snakemake --report` shows them and the page
    results/{variant}/report/compare/manifest.json   compare.json: all variants, their differences with verdicts; of main, where the run has variants
    results/{variant}/report/compare/compare.html    the page over all variants; it shows times too
    results/{variant}/report/now/report.html         by `snakemake report_now`: the page of what is there so far
"""


rule report_whatif:
    input:
        manifests=manifests_read_by("report.whatif"),
    output:
        manifest="results/{variant}/report/whatif/manifest.json",
    log:
        "logs/{variant}/report/whatif.log",
    benchmark:
        "results/{variant}/benchmarks/report/whatif.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("report.whatif"),
        manifests=manifests_read_by("report.whatif", ranged=True),
    shell:
        """
        python -m crawl2llm.stages.report.whatif \
            --config {params.fingerprint:q} \
            --manifests {params.manifests:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule report_inspect:
    input:
        manifests=manifests_read_by("report.inspect"),
    output:
        manifest="results/{variant}/report/inspect/manifest.json",
    log:
        "logs/{variant}/report/inspect.log",
    benchmark:
        "results/{variant}/benchmarks/report/inspect.tsv"
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("report.inspect"),
        manifests=manifests_read_by("report.inspect", ranged=True),
    shell:
        """
        python -m crawl2llm.stages.report.inspect \
            --config {params.fingerprint:q} \
            --manifests {params.manifests:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule report_render:
    input:
        manifests=manifests_for_report,
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
        manifests=manifest_ranges(),
    shell:
        """
        python -m crawl2llm.stages.report.render \
            --config {params.fingerprint:q} \
            --complete-config {COMPLETE:q} \
            --manifests {params.manifests:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule report_compare:
    input:
        manifests=manifests_of_all_variants("report.render", "evaluate.common"),
    output:
        manifest="results/{variant}/report/compare/manifest.json",
        page=report(
            "results/{variant}/report/compare/compare.html",
            caption="report/compare.rst",
            category="{variant}",
            labels={"shows": "all variants compared"},
        ),
    log:
        "logs/{variant}/report/compare.log",
    benchmark:
        "results/{variant}/benchmarks/report/compare.tsv"
    wildcard_constraints:
        variant="main",
    conda:
        "../envs/data.yaml"
    params:
        fingerprint=fingerprint("report.compare"),
    shell:
        """
        python -m crawl2llm.stages.report.compare \
            --config {params.fingerprint:q} \
            --complete-config {COMPLETE:q} \
            --sources {SOURCES:q} \
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
        python -m crawl2llm.commands.partial_report --results {params.results:q} --configfile {COMPLETE:q}
        """
