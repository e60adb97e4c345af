"""align: preferences and prompts, reward models, and models that are aligned by them."""


rule align_pairs:
    """Preferences, labelled answers or prompts, to train on and held out."""
    input:
        pairs=manifest("finetune.pairs"),
        model=answering_model(),
        index=manifests("decontaminate.index"),
    output:
        result("align.pairs"),
    threads: 1  # what align.pairs.threads says is no request
    shell:
        PROGRAM


rule align_reward:
    """{model}/: a model that scores answers, and its loss at every step."""
    input:
        model=parent(),
        pairs=manifest("align.pairs"),
    output:
        result("align.reward"),
    shell:
        TRAINING


rule align_train:
    """{model}/: the aligned model, and its loss at every step."""
    input:
        model=parent(),
        pairs=manifest("align.pairs"),
        rewards=reward_models("align.reward"),
    output:
        result("align.train"),
    shell:
        TRAINING
