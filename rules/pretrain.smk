"""pretrain: a causal language model trained from scratch, with DeepSpeed or torch alone, and before that, what it will take.

Checkpoints lie undeclared in checkpoints/, so that a failed or stopped job resumes from the newest.
"""


# Reads no token; where documents are grouped, their ids and sizes.
rule pretrain_mix:
    """mix.json and spans.npy: the order of sources, if the config has phases."""
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        signals=manifests_if_needed("language.score", "quality.score", "topics.score", by="pretrain.mix"),
    output:
        result("pretrain.mix"),
    priority: 1
    shell:
        PROGRAM


# Reads the documents' lengths, no token.
rule pretrain_pack:
    """The windows that documents are packed into, if pretrain.train.packing is best_fit and no mix packs them."""
    input:
        tokens=manifests("tokenize.encode"),
    output:
        result("pretrain.pack"),
    priority: 1
    shell:
        PROGRAM


# Seconds, where the workflow was started, and before the training begins; the training does not read it.
rule pretrain_plan:
    """What the training takes: parameters, tokens, operations; memory, hours and price in run.json."""
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        packs=manifests_if_needed("pretrain.pack", "pretrain.mix", by="pretrain.plan"),
    output:
        result("pretrain.plan"),
    priority: 1
    localrule: True
    params:
        placement("pretrain.train"),
        placement("pretrain.train", LAUNCHER),
        profile_gpu=profile_gpu,
    shell:
        PROGRAM


# The training of a variant up to a rung of sweep.halving; all of them in main, each with the placement of its variant.
rule pretrain_rung:
    """{contender}.json: a variant's loss at a rung, if sweep.halving is used."""
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        packs=manifests_if_needed("pretrain.pack", by="pretrain.rung"),
        before=rung_before(),
    output:
        result("pretrain.rung"),
    shell:
        TRAINING


rule pretrain_halve:
    """halving.json: who goes on after each rung, and why the others stop."""
    input:
        rungs=manifests("pretrain.rung"),
    output:
        result("pretrain.halve"),
    priority: 1
    localrule: True
    shell:
        PROGRAM


rule pretrain_train:
    """model/ and losses.jsonl; metrics.jsonl beside them."""
    input:
        manifests("pretrain.halve"),
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
        mix=manifests("pretrain.mix"),
        packs=manifests_if_needed("pretrain.pack", by="pretrain.train"),
    output:
        result("pretrain.train"),
    shell:
        TRAINING


rule pretrain_published:
    """{model}/: a model that somebody else trained, in the form of the run's own."""
    output:
        result("pretrain.published"),
    shell:
        PROGRAM


rule pretrain_continue:
    """{model}/: the model trained on, and its loss at every step."""
    input:
        model=parent(),
        tokens=tokens(),
    output:
        result("pretrain.continue"),
    shell:
        TRAINING
