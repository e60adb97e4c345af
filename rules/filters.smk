"""
filters: those that score each document and judge it by its scores, shard by shard. A filter with other steps has a file in rules/filters.

The shell command is the same text for all of them: Snakemake reads it again when a job starts, when the loop is over.
"""

for name in filter_order.ordinary_filters():

    rule:
        name:
            f"{name}_score"
        input:
            **scored_texts(f"{name}.score"),
        output:
            result(f"{name}.score"),
        shell:
            PROGRAM

    rule:
        name:
            f"{name}_select"
        input:
            signals=manifest(f"{name}.score"),
        output:
            result(f"{name}.select"),
        shell:
            PROGRAM
