"""
filters: those that score each document and judge it by its scores, shard by shard. A filter with other steps has a file in rules/filters.

OUTPUTS:

    url.score            what of each URL a list names
    url.select           verdicts under url.select
    multilingual.score   spans/{shard}.parquet: what is cut; the languages of each document's lines
    multilingual.select  verdicts under multilingual.select
    lines.score          spans/{shard}.parquet: what is taken out; what is left
    lines.select         verdicts under lines.select
    licence.score        the licence of each document
    licence.select       verdicts under licence.select
    sourcecode.score     measures of each source file
    sourcecode.select    verdicts under sourcecode.select
    toxicity.score       how many listed words, and probabilities
    toxicity.select      verdicts under toxicity.select
    pii.score            found/{shard}.parquet: where personal data is; how much of each kind
    pii.select           spans/{shard}.parquet: what is replaced; verdicts under pii.select

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
