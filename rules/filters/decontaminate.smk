"""decontaminate: items of evaluation sets, found in documents and taken out. Used where public tasks or files are named."""


rule decontaminate_index:
    """items.parquet: what is searched for."""
    output:
        result("decontaminate.index"),
    priority: 1  # says what is wrong with the data before hours are spent
    shell:
        PROGRAM


rule decontaminate_score:
    """matches/{shard}.parquet: which item where, and how much of it."""
    input:
        documents=manifest("ingest.extract"),
        verdicts=verdicts_before("decontaminate"),
        edits=edits("decontaminate"),
        index=manifest("decontaminate.index"),
    output:
        result("decontaminate.score"),
    shell:
        PROGRAM


rule decontaminate_select:
    """Verdicts; spans/{shard}.parquet: what is cut; found/{shard}.parquet."""
    input:
        signals=manifest("decontaminate.score"),
    output:
        result("decontaminate.select"),
    shell:
        PROGRAM
