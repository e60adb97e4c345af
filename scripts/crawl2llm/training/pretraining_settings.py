"""The settings of pretrain.train, and of what plans it: beside the code of the training, which every estimate of one reads too."""

from typing import Annotated, Any, Literal

from crawl2llm.core.setting_types import Seed, Share
from crawl2llm.core.settings import Allowed, Auto, NonEmpty, Number, Settings, optional, section, setting
from crawl2llm.training.shared_settings import TrainingSettings


class MixPhase(Settings):
    """A part of the training with its own mixture."""

    until: Number | Literal["decay"] | None = optional(gt=0, lt=1, form="a number above 0 and below 1, or 'decay'")
    shares: dict[str, Share] | None = optional()
    epochs: dict[str, Annotated[Number, Allowed(ge=0)]] | None = optional()
    temperature: Number | None = optional(gt=0)


class MixSettings(Settings):
    """The order in which the training reads sources, languages, buckets of quality or topics, by shares of its tokens. Without
    phases there is no such step, and every window is read once in each epoch. docs/mix.md.
    """

    by: Literal["source", "language", "quality", "topic"] = setting(
        "source",
        "What groups are: the sources of ingest.extract; the languages that language.score found; buckets of "
        "the scores of quality.score, q1 the lowest; the topics of topics.score. Documents of a group are "
        "packed into windows by themselves.",
    )
    buckets: int = setting(
        3,
        "Buckets of by quality, with as many tokens each.",
        source="CCNet has head, middle and tail, arXiv:1911.00359",
        ge=2,
        le=9,
    )
    phases: list[MixPhase] = setting(
        [],
        "What is trained on, phase after phase. Each has one of three: `shares` of its tokens by group (groups "
        "that are not named have what is left, by their tokens); `epochs` by group, as proportions (a group "
        "that is not named has 1); a `temperature` T, for shares in proportion to tokens^(1/T) (XLM-R and mT5 "
        "take 1/T = 0.3, arXiv:1911.02116 section 3, arXiv:2010.11934 section 3.2). All but the last have "
        "`until`: the share of the training's tokens with which they end, or `decay`, where the learning rate "
        "of schedule wsd begins to fall.",
    )
    max_epochs: Number = setting(
        4,
        "Most passes over a group in the whole training: up to 4 cost little.",
        source="Muennighoff et al. 2023, arXiv:2305.16264",
        gt=0,
    )
    max_epochs_of: dict[str, Annotated[Number, Allowed(ge=0)]] = setting({}, "Other such numbers, by group.")
    shortage: Literal["refuse", "share"] = setting(
        "refuse",
        "Where a group has fewer tokens than is asked for under max_epochs: refuse before the training, by "
        "name; or share, which holds it there and gives the rest to the others in proportion to their shares.",
    )


class PlanSettings(Settings):
    """Says before the training what it will take: parameters, operations, memory, disk, hours, price. No key here decides a
    byte: what depends on the machine is in the record beside the manifest.
    """

    gpu: NonEmpty | None = setting(
        None,
        "GPU that training runs on, by a name of scripts/crawl2llm/training/gpus.py such as h100 or a100-40gb. "
        "null: under SLURM the one that the profile asks for, else that of this machine, else its CPU.",
        placement=True,
    )
    gpu_memory: Number | None = setting(
        None,
        "Memory of a GPU in GB (1e9 bytes); null: that of its name. For a GPU that has no name here.",
        gt=0,
        placement=True,
    )
    mfu: Number | None = setting(
        None,
        "Share of the GPU's peak that training is expected to use; null: what the last training in the folder "
        "measured, else what pretrain.plan predicts, else 0.35.",
        gt=0,
        le=1,
        placement=True,
    )
    gpu_check: NonEmpty | None = setting(
        None,
        "JSON that `crawl2llm gpu-check --json` wrote on such a GPU: what it measured is taken for predictions, in "
        "the place of the data sheet.",
        placement=True,
    )
    gpu_hour_price: Number | None = setting(
        None, "Price of an hour of one GPU; null leaves money out.", ge=0, placement=True
    )
    currency: NonEmpty = setting("USD", "Currency of gpu_hour_price.", placement=True)


class TrainModel(Settings):
    """The architecture, built by transformers with random weights. A key that is `auto` follows from those that are set."""

    type: NonEmpty = setting("llama", "Architecture: a model type of transformers with a causal language model.")
    size: str | int | None = setting(
        None,
        "Parameters, embeddings among them, as a number or with K, M or B, such as 125M: fills the keys of the "
        "shape that are auto, by the rule in docs/stages/pretrain.md.",
        ge=1000,
        pattern="^[0-9]+([.][0-9]+)?[KMB]$",
        form="a number from 1000, or one with K, M or B, such as 125M",
        unless_default=True,
    )
    hidden_size: int | Auto = setting("auto", "Width of the residual stream.", ge=8)
    intermediate_size: int | Auto | None = setting(
        "auto", "Width of the feed-forward layers; null is the architecture's own.", ge=8
    )
    layers: int | Auto = setting("auto", "Transformer layers.", ge=1)
    heads: int | Auto = setting("auto", "Attention heads.", ge=1)
    kv_heads: int | Auto | None = setting(
        "auto", "Key and value heads (grouped-query attention, arXiv:2305.13245); null is the architecture's own.", ge=1
    )
    tie_embeddings: bool = setting(True, "One matrix for the input and the output embedding.")
    context: int | Auto = setting("auto", "Tokens of a training sequence.", ge=8, le=1048576)
    overrides: dict[str, Any] = setting(
        {}, "Further keys of the architecture's configuration in transformers, such as rope_parameters."
    )


class TrainParallel(Settings):
    """What processes share out beside the data and ZeRO's parts; engine torch alone. processes × nodes = data × tensor ×
    pipeline × sequence. Results are those of a single process up to rounding.
    """

    tensor: int = setting(
        1,
        "Processes that share out each layer's matrices, by the plan that the architecture has in transformers; "
        "divides the heads.",
        ge=1,
        le=1024,
        placement=True,
    )
    pipeline: int = setting(
        1,
        "Stages of layers, one after another, by schedule 1F1B (arXiv:1806.03377); needs as many micro-batches a step.",
        ge=1,
        le=1024,
        placement=True,
    )
    sequence: int = setting(
        1,
        "Processes that share out each sequence, and exchange it for heads around attention (Ulysses, "
        "arXiv:2309.14509); divides heads and context.",
        ge=1,
        le=1024,
        placement=True,
    )
    expert: int = setting(
        1,
        "Processes that share out a mixture's experts, among those of data and sequence; divides the experts; "
        "zero_stage 0.",
        ge=1,
        le=1024,
        placement=True,
    )


class TrainSettings(TrainingSettings):
    """Trains with DeepSpeed or with torch alone. What is `auto` is decided by the corpus, in the table of
    docs/stages/pretrain.md.
    """

    enabled: bool = setting(
        True,
        "Train the model `base`. Without it every model comes from a published one, and no step of pretrain runs that only "
        "`base` needs.",
        unless_default=True,
    )
    model: TrainModel = section()
    seed: Seed = setting(
        0, "Seed of the weights' start, of the order of the data and of the choice of validation documents."
    )
    start_from: NonEmpty | None = setting(
        None,
        "A folder to start from instead of random weights: of a model of the same shape (config.json, "
        "*.safetensors), whose training begins at step 1 with a fresh optimizer; or a checkpoint "
        "(checkpoints/<run>/step-000100), from which it continues after that step with the optimizer's state, "
        "for an annealing or an extension.",
        file=True,
    )
    steps: int | None = setting(None, "Optimizer updates; at most one of steps, tokens and epochs is given.", ge=1)
    tokens: int | None = setting(None, "Tokens to train on, rounded up to whole steps.", ge=1)
    epochs: Number | Auto | None = setting(
        "auto",
        "Passes over the training tokens; up to 4 cost little (arXiv:2305.16264). auto, if steps and tokens are "
        "null: a budget by the corpus and the model; null is 1.",
        gt=0,
    )
    global_batch_tokens: int | Auto = setting(
        "auto",
        "Tokens of one optimizer update over all processes.",
        source="GPT-3 125M takes 0.5 million, arXiv:2005.14165 table 2.1",
        ge=8,
    )
    batch_ramp: list[Annotated[list[Share], Allowed(min_length=2, max_length=2)]] = setting(
        [],
        "Smaller batches at the beginning (GPT-3, arXiv:2005.14165 appendix B): pairs of a share of the steps, "
        "and the share of global_batch_tokens that a step has from there on, such as [[0, 0.25], [0.1, 0.5], "
        "[0.2, 1]]; it ends with 1. None: all steps have global_batch_tokens.",
        unless_default=True,
    )
    learning_rate: Number | Auto = setting(
        "auto", "Peak learning rate.", source="GPT-3 125M takes 6e-4, arXiv:2005.14165 table 2.1", gt=0, le=1
    )
    base_width: int | None = setting(
        None,
        "hidden_size of the model that learning_rate was tuned on: rates, weight decay and initial weights of a "
        "wider one follow from it (µP, arXiv:2203.03466). Needs model.tie_embeddings: false. null scales "
        "nothing.",
        ge=8,
        unless_default=True,
    )
    optimizer: Literal["adamw", "muon"] = setting(
        "adamw",
        "adamw, or muon: orthogonal updates for the matrices inside the layers "
        "(https://kellerjordan.github.io/posts/muon), AdamW for embeddings, norms and biases. Learns more from "
        "the same tokens; engine deepspeed needs zero_stage 0 for it.",
    )
    muon_learning_rate: Number = setting(
        0.02,
        "Peak learning rate of Muon's matrices; learning_rate is that of all else.",
        source="Jordan et al. take 0.02",
        gt=0,
        le=1,
    )
    muon_momentum: Number = setting(0.95, "Muon's decay of the gradient's mean.", source="Jordan et al.", ge=0, lt=1)
    muon_precision: Literal["fp32", "bf16"] = setting(
        "fp32",
        "Precision in which Muon makes updates orthogonal, on every machine. bf16 is what Jordan et al. take, "
        "and much faster on a GPU; most CPUs are slower with it.",
        unless_default=True,
    )
    schedule: Literal["cosine", "linear", "wsd", "constant"] = setting(
        "cosine", "Learning rate after the warm-up; wsd is constant, then falls linearly.", source="arXiv:2404.06395"
    )
    warmup: Number | Auto = setting(
        "auto",
        "Share of the steps over which the learning rate rises linearly.",
        source="Pythia takes 0.01, arXiv:2304.01373",
        ge=0,
        le=1,
    )
    decay: Share = setting(0.2, "Share of the steps over which schedule wsd falls.", source="arXiv:2405.18392")
    min_learning_rate_ratio: Share = setting(
        0.1, "Last learning rate as a share of the peak.", source="Llama, arXiv:2302.13971"
    )
    weight_decay: Share = setting(
        0.1, "AdamW's, on matrices; not on embeddings, norms and biases.", source="GPT-3, arXiv:2005.14165 appendix B"
    )
    z_loss: Number = setting(
        0.0,
        "Weight of the mean square of the softmax's log-denominator in what is trained on, which keeps logits "
        "near 0 (PaLM takes 1e-4, arXiv:2204.02311 section 5). The losses that are shown are without it.",
        ge=0,
        unless_default=True,
    )
    router_z_loss: Number = setting(
        0.0,
        "For a mixture of experts: weight of the mean square of the routers' log-denominator, over tokens and "
        "layers, in what is trained on, which keeps their logits near 0 (ST-MoE, arXiv:2202.08906, and OLMoE take 1e-3).",
        ge=0,
        unless_default=True,
    )
    router_bias_rate: Number = setting(
        0.0,
        "For types whose routers choose experts by a bias (deepseek_v3, glm4_moe): how far the bias of an expert "
        "moves after each update, down if more tokens than the mean chose it, else up (DeepSeek-V3 takes 1e-3, "
        "arXiv:2412.19437 section 2.1.2). For engine torch.",
        ge=0,
        le=1,
        unless_default=True,
    )
    reduce_dtype: Literal["auto", "fp32"] = setting(
        "auto",
        "Precision in which processes add up their gradients: fp32; auto: bf16 under engine deepspeed with "
        "precision bf16, else fp32.",
        unless_default=True,
    )
    loss_chunk: int = setting(
        0,
        "Tokens whose logits are in memory at once in training; 0: those of the micro-batch. With 1024 or so a "
        "large vocabulary takes little memory; the last digits differ.",
        ge=0,
        unless_default=True,
    )
    compile_layers: bool = setting(
        False,
        "Compile the decoder layers one by one with torch.compile, for GPUs; the last digits differ. Not with "
        "engine deepspeed and zero_stage 3.",
        unless_default=True,
    )
    beta1: Number = setting(0.9, "AdamW's decay of the gradient's mean.", source="GPT-3", ge=0, lt=1)
    beta2: Number = setting(0.95, "AdamW's decay of the gradient's square.", source="GPT-3", ge=0, lt=1)
    epsilon: Number = setting(1e-08, "AdamW's term in the denominator.", source="GPT-3", gt=0, le=1)
    gradient_clipping: Number = setting(1.0, "Largest norm of the gradient (GPT-3); 0 does not clip.", ge=0)
    packing: Literal["stream", "best_fit"] = setting(
        "stream",
        "How documents are put into windows. stream: one after another, cut where a window ends. best_fit: whole, "
        "except those longer than a window; the room that is left has the beginning of another document.",
        source="Ding et al. 2024, arXiv:2404.10830",
        unless_default=True,
    )
    document_masking: bool = setting(
        False,
        "Attention stays within a document of a packed window, and positions begin at 0 in each.",
        source="Llama 3, arXiv:2407.21783 section 3.2",
        unless_default=True,
    )
    ema: Number | None = setting(
        None,
        "Decay of a mean of the weights over the last steps, which validation and the exported model take in "
        "the place of the last weights (0.999: TensorFlow's ExponentialMovingAverage); null takes the last.",
        gt=0,
        lt=1,
        unless_default=True,
    )
    spike_sigma: Number | None = setting(
        None,
        "Standard deviations above the mean of the last steps' losses, or norms of the gradient, beyond which "
        "an update is skipped (OLMo-core takes 6, src/olmo_core/optim/skip_step_optimizer.py); null skips none "
        "for it.",
        gt=0,
        unless_default=True,
    )
    spike_window: int = setting(
        128,
        "Last steps that spike_sigma compares with (OLMo-core's rolling_interval_length); it begins when half "
        "of them, 20 at least, are there.",
        ge=20,
        le=100000,
        unless_default=True,
    )
    roll_backs: int = setting(
        0,
        "Most times that a run goes back to a checkpoint before a spike that stays, and on without the batches "
        "that led to it (PaLM, arXiv:2204.02311 section 5.1); 0 never does.",
        ge=0,
        le=1000,
        unless_default=True,
    )
    roll_back_after: int = setting(
        3,
        "Skipped steps among the last spike_window after which a run goes back.",
        ge=1,
        le=100000,
        unless_default=True,
    )
    roll_back_every: int = setting(
        100,
        "Steps between the checkpoints that a run may go back to (PaLM goes back about 100 steps); they are "
        "written besides those of checkpoint_every where roll_backs is not 0.",
        ge=1,
        le=1000000,
        unless_default=True,
    )
    precision: Literal["bf16", "fp8", "fp16", "fp32"] = setting(
        "fp32",
        "Precision of weights and activations; master weights and optimizer are fp32. bf16 is for GPUs: most "
        "CPUs compute it slowly. fp16, with dynamic loss scaling, is for GPUs that have no bf16 (V100, T4). fp8 is "
        "bf16 with the layers' matrix products in eight bits, each tensor with one scale, the fastest on an H100: for "
        "engine torch and GPUs from L40S and H100 on; needs make fp8-tools.",
    )
    autocast: bool = setting(
        True,
        "How engine torch computes in bf16 or fp16 at zero_stage 0: true by autocast, with fp32 between the layers; "
        "false with a copy of the weights in that precision, as at all other stages and under deepspeed: faster on a "
        "GPU, with less memory.",
        unless_default=True,
    )
    engine: Literal["deepspeed", "torch"] = setting(
        "deepspeed",
        "What trains: DeepSpeed's ZeRO, or torch's own DDP (zero_stage 0) and FSDP2 (1 to 3). docs/engines.md "
        "says which to choose.",
        unless_default=True,
    )
    zero_stage: Literal[0, 1, 2, 3] = setting(
        1,
        "What the processes share out (ZeRO, arXiv:1910.02054): 1 the optimizer, 2 the gradients too, 3 the "
        "weights too; 0 nothing. docs/engines.md has what it means under engine torch.",
    )
    shard_over: Literal["all", "node"] = setting(
        "all",
        "Processes over which zero_stage 1 to 3 shares out, of engine torch: all, or those of each node, between which "
        "only the gradients' sums go (hybrid sharding): for networks between nodes that are slower than inside them, "
        "if a node has room.",
        placement=True,
    )
    threads: int = setting(
        2,
        "CPU threads of each process, also on a machine with fewer cores; tracked because it changes the order "
        "of sums.",
        ge=1,
        le=1024,
        formerly="threads_per_process",
    )
    validate_every: int | Auto = setting(
        "auto",
        "Steps between validations; 0 validates at the end only; auto validates 10 times, and every 500 steps "
        "at least.",
        ge=0,
    )
    early_stop: int | None = setting(
        None,
        "Patience: validations in a row without a better one after which the run ends; the model is that of the "
        "best validation (Goodfellow, Bengio and Courville 2016, Deep Learning, algorithm 7.1). null: it ends "
        "with its last step, whose model it is.",
        ge=1,
        le=100000,
        unless_default=True,
    )
    validation_tokens: int | Auto = setting(
        "auto", "Validation tokens to score, as whole documents chosen by hash.", ge=1
    )
    save_dtype: Literal["bf16", "fp32"] = setting("fp32", "Type of the weights in model/.")
    micro_batch: int = setting(
        8,
        "Sequences that a process takes at once; the rest of the global batch is accumulated. Where "
        "global_batch_tokens is auto, the largest number up to this that divides it.",
        ge=1,
        placement=True,
    )
    processes: int = setting(1, "Processes of each node, one for each GPU.", ge=1, le=1024, placement="launcher")
    parallel: TrainParallel = section(placement=True)
    stage_to: str = setting(
        "",
        "Folder on the node's own disk that the token files are copied to first, such as $SLURM_TMPDIR; empty: "
        "they are read where they lie.",
        placement=True,
    )
    selective_checkpointing: bool = setting(
        False,
        "With activation_checkpointing: keep the results of matrix products and attention, which cost most to "
        "compute, and compute the others again.",
        placement=True,
    )
    checkpoint_every: int = setting(100, "Steps between checkpoints.", ge=1, placement=True)
    async_checkpoints: bool = setting(
        False,
        "Training goes on while a checkpoint is written: its state is copied to memory first. For engine torch; "
        "docs/resume.md has what it costs.",
        placement=True,
    )
    keep_checkpoints: int = setting(2, "Newest checkpoints to keep, also after the end.", ge=1, placement=True)
    keep_every: int = setting(
        0,
        "Write and keep a checkpoint every n-th step too, for an analysis; 0 keeps none for it.",
        ge=0,
        placement=True,
    )
    keep_best: bool = setting(
        False,
        "Write a checkpoint after a validation that is the best so far, and keep it until a better one.",
        placement=True,
    )
    max_skipped_steps: int = setting(
        10,
        "Most steps of a run whose update is skipped, since the loss or the gradient is not finite or a spike; "
        "one more ends the run with an error.",
        ge=0,
        placement=True,
    )
    log_every: int = setting(10, "Steps between rows of metrics.jsonl and lines of the log.", ge=1, placement=True)
    straggler_threshold: Number = setting(
        1.5,
        "How many times the median of all processes one may take to read its tokens and compute, before a "
        "warning names it.",
        ge=1,
        placement=True,
    )
    prometheus_port: int = setting(
        0,
        "Port on 127.0.0.1 of process 0's node where Prometheus reads the metrics; 0: none. The file "
        "metrics.prom beside metrics.jsonl has the same.",
        ge=0,
        le=65535,
        placement=True,
    )
    tensorboard: bool = setting(True, "Write TensorBoard's event files beside the checkpoints.", placement=True)
    wandb: Literal["offline", "online", "disabled"] = setting(
        "offline", "Weights & Biases; offline writes beside the checkpoints, for `wandb sync`.", placement=True
    )


class ResolvedModel(TrainModel):
    """With a number for each key that was `auto`."""

    hidden_size: int
    intermediate_size: int | None
    layers: int
    heads: int
    kv_heads: int | None
    context: int


class ResolvedSettings(TrainSettings):
    """As training/auto.py resolves them: with a number for each key that was `auto`."""

    model: ResolvedModel
    epochs: Number | None
    global_batch_tokens: int
    learning_rate: Number
    warmup: Number
    validate_every: int
    validation_tokens: int
