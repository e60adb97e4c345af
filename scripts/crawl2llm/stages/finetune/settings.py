"""The settings of the stage finetune."""

from typing import Literal

from crawl2llm.core.settings import NonEmpty, Number, Settings, optional, section, setting
from crawl2llm.training.shared_settings import (
    LOSS_SCALE_POWER,
    LOSS_SCALE_WINDOW,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAMETERS,
    OFFLOAD_PATH,
)


class PairsPattern(Settings):
    """What makes a pair of a text."""

    preset: Literal["summary", "title", "lead"] | None = optional()
    pattern: NonEmpty | None = optional()
    question: NonEmpty | None = optional()


class PairsFile(Settings):
    """A file of instructions or conversations."""

    path: NonEmpty = setting()
    layout: Literal["columns", "alpaca", "chat"] | None = optional()
    question: NonEmpty | None = optional()
    answer: NonEmpty | None = optional()
    labels: dict[str, NonEmpty] | None = optional(min_length=2)
    columns: list[NonEmpty] | None = optional(min_length=1, unique=True)
    heldout: Number | None = optional(ge=0, le=1)


class PairsSettings(Settings):
    """Derives pairs from the corpus by regular expressions, without leaks into the held-out pairs."""

    patterns: list[PairsPattern] = setting(
        [{"preset": "title"}],
        "What makes a pair. Each is a preset (`summary`: a Python signature and its summary line; `title`: a "
        "page's title and its first sentence; `lead`: what follows a text's first sentence, and that sentence), "
        "or a multiline regular expression with the groups `subject` and `answer`, and a question that holds "
        "{subject} or the page's {title}. [] takes no pairs from the corpus.",
    )
    files: list[PairsFile] = setting(
        [],
        "Files of instructions or conversations: JSON Lines, JSON, CSV or TSV, bare or as .gz or .zst. "
        "`layout`: `alpaca` (instruction, input, output), `chat` (messages or conversations), or `columns` (the "
        'default), in which `question` and `answer` hold names of columns ("{question}", "{answer}"). '
        "`labels`: for a classification, the word for each value of the answer. `columns`: names of those of a "
        "table without a line of them. `heldout`: share of the questions that are held out (0.05).",
        unique=True,
        file=True,
    )
    template: NonEmpty = setting(
        "Question: {question}\nAnswer: {answer}",
        "How a pair is laid out as text, in fine-tuning and in evaluation; holds {question}, ends with {answer}.",
    )
    question_cut: Literal["left", "middle", "right"] = setting(
        "middle",
        "The part of a question that is cut out if it is too long for max_length or a model's context, in "
        "fine-tuning, alignment, evaluation and generation; the answer stays whole.",
    )
    max_characters: int = setting(200000, "Characters of a document that the patterns see.", ge=100, le=100000000)
    max_line: int = setting(
        1000, "Longest line in characters that the patterns see; a longer one is blank to them.", ge=20, le=100000
    )
    min_answer_words: int = setting(3, "Fewest words of an answer.", ge=1, le=1000)
    max_answer_words: int = setting(40, "Most words of an answer.", ge=1, le=1000)
    max_train: int = setting(2000, "Most training pairs, chosen by hash; they are held in memory.", ge=1, le=1000000)
    min_train: int = setting(
        100,
        "Fewest training pairs; with fewer, fine-tuning is left out (its model is the base model), and the "
        "report says so.",
        ge=1,
        le=1000000,
    )
    max_heldout: int = setting(500, "Most held-out pairs, chosen by hash.", ge=4, le=100000)
    min_heldout: int = setting(
        20,
        "Fewest held-out pairs; with fewer, the questions are not asked in evaluation, and the report says so.",
        ge=4,
        le=100000,
    )
    seed: int = setting(0, "Seed of every choice of this step.", ge=0, le=4294967295)


class TrainSettings(Settings):
    """Supervised fine-tuning by the engines of pretrain.train; the loss is that of the answers alone."""

    epochs: Number = setting(3, "Passes over the training pairs.", source="Alpaca trains 3", gt=0, le=1000)
    batch_size: int = setting(
        32,
        "Pairs of an optimizer step over all processes; the last step takes what is left of the epochs.",
        ge=1,
        le=65536,
    )
    micro_batch: int = setting(
        32,
        "Most pairs that a process takes at once; gradients are accumulated up to batch_size.",
        ge=1,
        le=4096,
        formerly="micro_batch_size",
    )
    max_length: int = setting(
        128,
        "Longest pair in tokens. The question of a longer one is cut (finetune.pairs.question_cut); a pair "
        "whose answer alone does not fit is left out.",
        ge=8,
        le=1048576,
    )
    learning_rate: Number = setting(
        0.001,
        "Peak learning rate of AdamW; about 1e-3 suits a demo of 0.6M parameters and 2e-5 one of 7B.",
        source="Alpaca",
        gt=0,
        le=1,
    )
    schedule: Literal["cosine", "linear", "constant"] = setting("cosine", "Learning rate after the warm-up.")
    warmup: Number = setting(0.03, "Share of the steps that the learning rate rises over.", source="Alpaca", ge=0, lt=1)
    beta1: Number = setting(0.9, "First beta of AdamW.", ge=0, lt=1)
    beta2: Number = setting(0.95, "Second beta of AdamW.", ge=0, lt=1)
    weight_decay: Number = setting(
        0,
        "Weight decay of AdamW, on matrices; not on embeddings, norms and biases.",
        source="Alpaca has none",
        ge=0,
        le=1,
    )
    gradient_clipping: Number = setting(1.0, "Largest norm of the gradient; 0 does not clip.", ge=0, le=1000)
    precision: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32",
        "Arithmetic of the forward and backward pass; master weights and optimizer are fp32. fp16 has dynamic "
        "loss scaling.",
    )
    loss_scale_power: int = LOSS_SCALE_POWER
    loss_scale_window: int = LOSS_SCALE_WINDOW
    offload_optimizer: Literal["none", "cpu", "nvme"] = OFFLOAD_OPTIMIZER
    offload_parameters: Literal["none", "cpu", "nvme"] = OFFLOAD_PARAMETERS
    offload_path: NonEmpty | None = OFFLOAD_PATH
    engine: Literal["deepspeed", "torch"] = setting(
        "deepspeed",
        "What trains: DeepSpeed's ZeRO, or torch's own DDP (zero_stage 0) and FSDP2 (1 to 3), as in pretrain.train.",
    )
    loss_chunk: int = setting(
        0,
        "Answers' tokens whose logits are there at once in training; 0: those of the whole micro-batch, prompts "
        "among them. With 1024 or so a large vocabulary takes little memory; the last digits differ.",
        ge=0,
        unless_default=True,
    )
    adapter: Literal["none", "lora", "qlora"] = setting(
        "none",
        "`lora`: train two small matrices beside each linear layer instead of the model (arXiv:2106.09685), by "
        "engine torch; `qlora`: with those layers in four bits (NF4, arXiv:2305.14314), zero_stage 0. The "
        "result is the model with their products added, and the adapter in PEFT's files beside it.",
        unless_default=True,
    )
    adapter_rank: int = setting(16, "Rank of an adapter's matrices.", ge=1, le=65536, unless_default=True)
    adapter_alpha: Number = setting(32, "Their product counts alpha/rank times.", gt=0, le=1000000, unless_default=True)
    adapter_targets: list[NonEmpty] = setting(
        [],
        "Linear layers that get an adapter, by the last part of their names, such as q_proj and v_proj; [] all "
        "but the head.",
        unique=True,
        unless_default=True,
    )
    quantize_aware: Literal["none", "int8", "nf4", "int4"] = setting(
        "none",
        "Round the weights of the linear layers in the forward pass as compress.quantize does by the method of "
        "this name, so that the model loses little when it is quantized so (arXiv:1308.3432, arXiv:1712.05877). "
        "By engine torch, zero_stage 0, without an adapter.",
        unless_default=True,
    )
    quantize_aware_group_size: Literal[32, 64, 128] = setting(
        128, "Of `int4`: weights of a row with a common scale, as compress.quantize.group_size.", unless_default=True
    )
    pairs_of: list[NonEmpty] = setting(
        [],
        "Patterns (by their preset or question) and files (by their name) of finetune.pairs whose pairs are "
        "trained on and make the held-out loss; [] all. So models of one run are fine-tuned on different pairs.",
        unique=True,
        unless_default=True,
    )
    packing: bool = setting(
        False,
        "Put several pairs in a row of max_length tokens, none of which sees the others, so that hardly a token "
        "is padding. A step has the same pairs, and micro_batch counts rows; the last digits differ.",
        unless_default=True,
    )
    zero_stage: Literal[0, 1, 2, 3] = setting(
        1,
        "What the processes share out (ZeRO, arXiv:1910.02054): 1 the optimizer, 2 the gradients too, 3 the "
        "weights too; 0 nothing. 3 for a model that is too large for one GPU.",
    )
    seed: int = setting(0, "Seed of the order of the pairs.", ge=0, le=4294967295)
    threads: int = setting(
        2,
        "CPU threads of a process, also on a machine with fewer cores; they decide the last digits of sums on a CPU.",
        ge=1,
        le=1024,
    )
    processes: int = setting(
        1,
        "Processes of each node, one for each GPU; batch_size is their common batch, whatever their number.",
        ge=1,
        le=1024,
        placement="launcher",
    )
    nodes: int = setting(1, "Nodes of the SLURM job.", ge=1, le=10000, placement="launcher")
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "auto takes CUDA where there is any; on several nodes, where all have it or none.", placement=True
    )
    numa_binding: bool = setting(
        True, "Run each process on the cores of its GPU's NUMA node, where the system tells them.", placement=True
    )
    activation_checkpointing: bool = setting(
        False, "Compute activations again in the backward pass instead of keeping them.", placement=True
    )
    async_checkpoints: bool = setting(
        False, "Training goes on while a checkpoint is written, as in pretrain.train. For engine torch.", placement=True
    )
    checkpoint_every: int = setting(
        200,
        "Steps between checkpoints, to resume from after an interruption; 0 writes none but at a signal.",
        ge=0,
        le=1000000,
        placement=True,
    )
    max_skipped_steps: int = setting(
        10,
        "Most steps whose update is skipped, since the loss or the gradient is not finite; one more ends the "
        "run with an error.",
        ge=0,
        placement=True,
    )
    step_timeout: int = setting(
        600,
        "Seconds that a process waits for the others in a step. After nine tenths of it the training ends with "
        "an error that names the process that hangs and where in the program it is.",
        ge=10,
        placement=True,
    )
    tensorboard: bool = setting(False, "Write TensorBoard's event files beside the checkpoints.", placement=True)
    wandb: Literal["disabled", "offline", "online"] = setting(
        "disabled", "Weights & Biases; offline writes beside the checkpoints, for `wandb sync`.", placement=True
    )
    wandb_project: NonEmpty = setting("crawl2llm", "Project in Weights & Biases.", placement=True)
    wandb_group: NonEmpty | None = setting(
        None,
        "Group in Weights & Biases, such as a name for a sweep; null: the name of the run's folder. A run there "
        "is called by its variant.",
        placement="launcher",
    )


class FinetuneSettings(Settings):
    """Question and answer pairs from the corpus, and supervised fine-tuning on them."""

    pairs: PairsSettings = section()
    train: TrainSettings = section()
