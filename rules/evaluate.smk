"""evaluate: tasks from held-out text; held-out loss, the tasks, question answering, samples and public tasks of each model; all models compared."""


rule evaluate_items:
    """items.jsonl: the tasks; {unigram,bigram}.items.jsonl: results on them."""
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
    output:
        result("evaluate.items"),
    shell:
        PROGRAM


rule evaluate_model:
    """{model}.evaluation.json, {model}.{items,heldout,samples}.jsonl."""
    input:
        model=model(),
        pairs=manifest("finetune.pairs"),
        tokens=tokens(),
        heldout=manifests("tokenize.encode"),
        tasks=manifest("evaluate.items"),
    output:
        result("evaluate.model"),
    shell:
        PROGRAM


rule evaluate_stage:
    """{task}.jsonl, {task}.shots.jsonl: data of public tasks, if any are named."""
    output:
        result("evaluate.stage"),
    priority: 1  # says what is wrong with the data before hours are spent
    shell:
        PROGRAM


rule evaluate_public:
    """{model}.public.json, {model}.items.jsonl."""
    input:
        model=model(),
        staged=manifest("evaluate.stage"),
    output:
        result("evaluate.public"),
    shell:
        PROGRAM


rule evaluate_found:
    """found.json, found.jsonl: items in the text, accuracy without them, if decontaminate is used."""
    input:
        index=manifests("decontaminate.index"),
        selected=manifests("decontaminate.select"),
        public=manifests("evaluate.public"),
    output:
        result("evaluate.found"),
    shell:
        PROGRAM


rule evaluate_curve:
    """curve.json, curve.items.jsonl: tasks by step of pre-training, if asked for."""
    input:
        model=manifest("pretrain.train"),
        tasks=manifest("evaluate.items"),
    output:
        result("evaluate.curve"),
    shell:
        PROGRAM


rule evaluate_common:
    """{model}.{heldout,items}.jsonl: on what main holds out, if the run has variants."""
    input:
        model=model(),
        corpus=manifests_of_main("corpus.write"),
        tasks=manifests_of_main("evaluate.items"),
    output:
        result("evaluate.common"),
    shell:
        PROGRAM


rule evaluate_generate:
    """{model}.generated.json, {model}.{answers,texts}.jsonl, if asked for."""
    input:
        model=model(),
        pairs=manifest("finetune.pairs"),
    output:
        result("evaluate.generate"),
    shell:
        PROGRAM


rule evaluate_judge:
    """{model}.judged.json, {model}.scores.jsonl, if a judge is named."""
    input:
        generated=manifest("evaluate.generate"),
    output:
        result("evaluate.judge"),
    shell:
        PROGRAM


rule evaluate_compare:
    """compare.json: which model is better, by measure."""
    input:
        evaluations=manifests("evaluate.model"),
        tokens=manifests("tokenize.encode"),
        languages=manifests("language.score"),
        public=manifests("evaluate.public"),
        generated=manifests("evaluate.generate"),
        judged=manifests("evaluate.judge"),
    output:
        result("evaluate.compare"),
    shell:
        PROGRAM
