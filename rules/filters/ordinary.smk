"""
The filters that measure each document by itself and compare the measures with thresholds, in one step each.

Which these are, and what their steps read, follows from their steps.py: scripts/crawl2llm/chain/filter_order.py, ORDINARY.

REQUIRED INPUTS:

    results/{variant}/ingest/extract/{shard}.manifest.json
    the verdicts and the edits of the filters before, and results/{variant}/language/score/{shard}.manifest.json, if a filter reads them

OUTPUTS:

    results/{variant}/url/score/{shard}.manifest.json    what of each URL a list names
    results/{variant}/multilingual/score/{shard}.manifest.json    spans/{shard}.parquet: what is cut; the languages of each document's lines
    results/{variant}/lines/score/{shard}.manifest.json    spans/{shard}.parquet: what is taken out; what is left
    results/{variant}/licence/score/{shard}.manifest.json    the licence of each document
    results/{variant}/sourcecode/score/{shard}.manifest.json    measures of each source file
    results/{variant}/toxicity/score/{shard}.manifest.json    how many listed words, and probabilities
    results/{variant}/pii/score/{shard}.manifest.json    found/{shard}.parquet: where personal data is; how much of each kind
    results/{variant}/pii/select/{shard}.manifest.json   spans/{shard}.parquet: what is replaced; verdicts under pii.select
"""

for _step in filter_order.ORDINARY_STEPS:

    rule:
        name:
            steps.rule_of(_step)
        input:
            **inputs_of_filter(_step),
        output:
            manifest=f"results/{{variant}}/{steps.folder_of(_step)}/{{shard}}.manifest.json",
        log:
            f"logs/{{variant}}/{steps.folder_of(_step)}/{{shard}}.log",
        benchmark:
            f"results/{{variant}}/benchmarks/{steps.folder_of(_step)}/{{shard}}.tsv"
        conda:
            "../../envs/data.yaml"
        threads: shards_at_once(_step)
        params:
            program=steps.program_of(_step),
            fingerprint=fingerprint(_step),
            also=further_results(_step),
            inputs=input_options,
        shell:
            """
            python -m {params.program} \
                --config {params.fingerprint:q} \
                {params.inputs:q} \
                --also {params.also:q} \
                --at-once {threads:q} \
                --manifest {output.manifest:q} \
                --log {log:q}
            """
