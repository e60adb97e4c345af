"""report: the page that shows a run."""


rule report_whatif:
    """whatif.json: what other thresholds of select steps would keep."""
    input:
        manifests=manifests_read_by("report.whatif"),
    output:
        result("report.whatif"),
    shell:
        PROGRAM


rule report_inspect:
    """index.html and a page for each filter, to mark documents on; samples.jsonl."""
    input:
        manifests=manifests_read_by("report.inspect"),
    output:
        result("report.inspect"),
    shell:
        PROGRAM


rule report_render:
    """funnel.json and counts.json: the numbers that the input alone decides; the page and its figures, which show times too."""
    input:
        manifests=manifests_for_report(),
    output:
        result("report.render"),
        figure("report.render", "report.html", "page", "the whole run"),
        figure("report.render", "figures/funnel.svg", "funnel", "documents kept and dropped"),
        figure("report.render", "figures/loss.svg", "loss", "loss"),
        figure("report.render", "figures/bits-per-byte.svg", "bits", "bits per byte"),
    params:
        complete_config=complete_config,
    shell:
        PROGRAM


rule report_compare:
    """compare.json: all variants, their differences with verdicts; of main, if the run has variants."""
    input:
        manifests_of_all_variants("report.render", "evaluate.common", "evaluate.public"),
    output:
        result("report.compare"),
        figure("report.compare", "compare.html", "compare", "all variants compared"),
    wildcard_constraints:
        variant="main",
    params:
        complete_config=complete_config,
        sources=SOURCES,
    shell:
        PROGRAM


# No input and no output: it always runs when it is asked for. It is part of no other target.
rule report_now:
    """Show what is there so far."""
    localrule: True
    conda:
        "../envs/data.yaml"
    params:
        results=expand("results/{variant}", variant=VARIANTS),
    shell:
        """
        python -m crawl2llm.commands.partial_report --results {params.results:q} --configfile {COMPLETE:q}
        """
