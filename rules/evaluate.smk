"""
evaluate: tasks from held-out text; held-out loss, the tasks, question answering, samples and public tasks of each model; all models compared.

REQUIRED INPUTS:

    results/{variant}/pretrain/train/manifest.json            of the model `base`
    results/{variant}/finetune/train/{model}.manifest.json    of each other model
    results/{variant}/finetune/pairs/manifest.json
    results/{variant}/tokenize/encode/{shard}.manifest.json
    results/{variant}/tokenize/train/manifest.json

OUTPUTS:

    results/{variant}/evaluate/items/manifest.json            items.jsonl: the tasks; {unigram,bigram}.items.jsonl: results on them
    results/{variant}/evaluate/model/{model}.manifest.json    {model}.evaluation.json, {model}.{items,heldout,samples}.jsonl
    results/{variant}/evaluate/stage/manifest.json            {task}.jsonl, {task}.shots.jsonl: data of public tasks, where any are named
    results/{variant}/evaluate/public/{model}.manifest.json   {model}.public.json, {model}.items.jsonl
    results/{variant}/evaluate/found/manifest.json            found.json, found.jsonl: items in the text, accuracy without them, where decontaminate is used
    results/{variant}/evaluate/curve/manifest.json            curve.json, curve.items.jsonl: tasks by step of pre-training, where asked for
    results/{variant}/evaluate/common/{model}.manifest.json   {model}.{heldout,items}.jsonl: on what main holds out, where the run has variants
    results/{variant}/evaluate/generate/{model}.manifest.json {model}.generated.json, {model}.{answers,texts}.jsonl, where asked for
    results/{variant}/evaluate/judge/{model}.manifest.json    {model}.judged.json, {model}.scores.jsonl, where a judge is named
    results/{variant}/evaluate/compare/manifest.json          compare.json: which model is better, by measure
"""


rule evaluate_items:
    input:
        tokens=manifests("tokenize.encode"),
        tokenizer=manifest("tokenize.train"),
    output:
        manifest="results/{variant}/evaluate/items/manifest.json",
    log:
        "logs/{variant}/evaluate/items.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/items.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.items"),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.items \
            --config {params.fingerprint:q} \
            --tokens {params.tokens:q} \
            --tokenizer {input.tokenizer:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_model:
    input:
        model=model,
        pairs=manifest("finetune.pairs"),
        tokens=manifests("tokenize.encode"),
        made=manifest("evaluate.items"),
    output:
        manifest="results/{variant}/evaluate/model/{model}.manifest.json",
    log:
        "logs/{variant}/evaluate/model/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/model/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: setting("evaluate.model", "threads")
    resources:
        card=gpu_count("evaluate.model"),
    params:
        fingerprint=fingerprint("evaluate.model"),
        placement=placement("evaluate.model"),
        tokens=manifest_ranges("tokenize.encode"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.model \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            --tokens {params.tokens:q} \
            --items {input.made:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_stage:
    output:
        manifest="results/{variant}/evaluate/stage/manifest.json",
    log:
        "logs/{variant}/evaluate/stage.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/stage.tsv"
    priority: 1  # says what is wrong with the data before hours are spent
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.stage"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.stage \
            --config {params.fingerprint:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_public:
    input:
        model=model,
        staged=manifest("evaluate.stage"),
    output:
        manifest="results/{variant}/evaluate/public/{model}.manifest.json",
    log:
        "logs/{variant}/evaluate/public/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/public/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: setting("evaluate.public", "threads")
    resources:
        card=gpu_count("evaluate.public"),
    params:
        fingerprint=fingerprint("evaluate.public"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.public \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --staged {input.staged:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_found:
    input:
        index=manifests("decontaminate.index"),
        selected=manifests("decontaminate.select"),
        public=manifests("evaluate.public"),
    output:
        manifest="results/{variant}/evaluate/found/manifest.json",
    log:
        "logs/{variant}/evaluate/found.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/found.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.found"),
        selected=manifest_ranges("decontaminate.select"),
        public=manifest_ranges("evaluate.public"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.found \
            --config {params.fingerprint:q} \
            --index {input.index:q} \
            --selected {params.selected:q} \
            --public {params.public:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_curve:
    input:
        model=manifest("pretrain.train"),
        made=manifest("evaluate.items"),
    output:
        manifest="results/{variant}/evaluate/curve/manifest.json",
    log:
        "logs/{variant}/evaluate/curve.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/curve.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: setting("evaluate.curve", "threads")
    resources:
        card=gpu_count("evaluate.curve"),
    params:
        fingerprint=fingerprint("evaluate.curve"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.curve \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --items {input.made:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_common:
    input:
        model=model,
        corpus=manifests_of_main("corpus.write"),
        made=manifests_of_main("evaluate.items"),
    output:
        manifest="results/{variant}/evaluate/common/{model}.manifest.json",
    log:
        "logs/{variant}/evaluate/common/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/common/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: setting("evaluate.common", "threads")
    resources:
        card=gpu_count("evaluate.common"),
    params:
        fingerprint=fingerprint("evaluate.common"),
        placement=placement("evaluate.common"),
        corpus=manifests_of_main("corpus.write", ranged=True),
    shell:
        """
        python -m crawl2llm.stages.evaluate.common \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --corpus {params.corpus:q} \
            --items {input.made:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_generate:
    input:
        model=model,
        pairs=manifest("finetune.pairs"),
    output:
        manifest="results/{variant}/evaluate/generate/{model}.manifest.json",
    log:
        "logs/{variant}/evaluate/generate/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/generate/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: setting("evaluate.generate", "threads")
    resources:
        card=gpu_count("evaluate.generate"),
    params:
        fingerprint=fingerprint("evaluate.generate"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.generate \
            --config {params.fingerprint:q} \
            --model {input.model:q} \
            --pairs {input.pairs:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_judge:
    input:
        generated=manifest("evaluate.generate"),
    output:
        manifest="results/{variant}/evaluate/judge/{model}.manifest.json",
    log:
        "logs/{variant}/evaluate/judge/{model}.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/judge/{model}.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.judge"),
        placement=placement("evaluate.judge"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.judge \
            --config {params.fingerprint:q} \
            --generated {input.generated:q} \
            {params.placement:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """


rule evaluate_compare:
    input:
        evaluations=manifests("evaluate.model"),
        tokens=manifests("tokenize.encode"),
        languages=manifests("language.score"),
        public=manifests("evaluate.public"),
        generated=manifests("evaluate.generate"),
        judged=manifests("evaluate.judge"),
    output:
        manifest="results/{variant}/evaluate/compare/manifest.json",
    log:
        "logs/{variant}/evaluate/compare.log",
    benchmark:
        "results/{variant}/benchmarks/evaluate/compare.tsv"
    conda:
        "../envs/evaluate.yaml"
    params:
        fingerprint=fingerprint("evaluate.compare"),
        evaluations=manifest_ranges("evaluate.model"),
        tokens=manifest_ranges("tokenize.encode"),
        languages=manifest_ranges("language.score"),
        public=manifest_ranges("evaluate.public"),
        generated=manifest_ranges("evaluate.generate"),
        judged=manifest_ranges("evaluate.judge"),
    shell:
        """
        python -m crawl2llm.stages.evaluate.compare \
            --config {params.fingerprint:q} \
            --evaluations {params.evaluations:q} \
            --tokens {params.tokens:q} \
            --languages {params.languages:q} \
            --public {params.public:q} \
            --generated {params.generated:q} \
            --judged {params.judged:q} \
            --manifest {output.manifest:q} \
            --log {log:q}
        """
