"""Keys that several trainings have, declared once: pretrain.train, pretrain.continue, finetune.train, align.reward, align.train,
compress.prune and compress.distil.
"""

from typing import Literal

from crawl2llm.core.setting_types import BatchSize, Device, Precision, Seed, Share, Threads
from crawl2llm.core.settings import NonEmpty, Number, Settings, setting


class ProcessSettings(Settings):
    """Of every training: where its processes run."""

    nodes: int = setting(1, "Nodes of the SLURM job.", ge=1, le=10000, placement="launcher")
    device: Device = setting(
        "auto", "auto takes CUDA if there is any; on several nodes, all must have it or none.", placement=True
    )
    numa_binding: bool = setting(
        True, "Run each process on the cores of its GPU's NUMA node, if the system names them.", placement=True
    )
    activation_checkpointing: bool = setting(
        False, "Compute activations again in the backward pass instead of keeping them.", placement=True
    )


class TrainingSettings(ProcessSettings):
    """Of every training that may be large: all but compress.prune."""

    loss_scale_power: int = setting(
        16,
        "With precision fp16: the loss is multiplied by 2 to this power in the beginning (DeepSpeed's and "
        "torch's 65,536), halved after each overflow of the gradient.",
        ge=0,
        le=32,
        unless_default=True,
    )
    loss_scale_window: int = setting(
        1000,
        "With precision fp16: updates in a row without an overflow after which the loss scale is doubled.",
        source="DeepSpeed's default",
        ge=1,
        le=1000000,
        unless_default=True,
    )
    offload_optimizer: Literal["none", "cpu", "nvme"] = setting(
        "none",
        "Where DeepSpeed keeps master weights and the optimizer's state, and updates them: on the GPU, in the "
        "node's memory (ZeRO-Offload, zero_stage 1 to 3), or on its disk (ZeRO-Infinity, zero_stage 3).",
        unless_default=True,
    )
    offload_parameters: Literal["none", "cpu", "nvme"] = setting(
        "none",
        "Where DeepSpeed keeps the weights that it computes with while no layer needs them (zero_stage 3, with "
        "offload_optimizer).",
        unless_default=True,
    )
    offload_path: NonEmpty | None = setting(
        None,
        "A folder on the node's NVMe disk, for what is nvme in the two keys above; gigabytes of files are written there.",
        placement=True,
    )
    step_timeout: int = setting(
        600,
        "Seconds that a process waits for the others in a step. After nine tenths of it the training ends with "
        "an error that names the process that hangs and where in the program it is.",
        ge=10,
        placement=True,
    )
    wandb_project: NonEmpty = setting("crawl2llm", "Project in Weights & Biases.", placement=True)
    wandb_group: NonEmpty | None = setting(
        None,
        "Group in Weights & Biases, such as a name for a sweep; null: the name of the run's folder. A run there "
        "is called by its variant.",
        placement="launcher",
    )


class AdamWSettings(ProcessSettings):
    """Of every training of a model that is there: what trains, AdamW, and checkpoints to resume from."""

    engine: Literal["deepspeed", "torch"] = setting(
        "deepspeed",
        "What trains: DeepSpeed's ZeRO, or torch's own DDP (zero_stage 0) and FSDP2 (1 to 3), as in pretrain.train.",
    )
    threads: Threads = setting(
        2, "CPU threads of a process, also on a machine with fewer cores; they decide the last digits of sums on a CPU."
    )
    processes: Threads = setting(
        1,
        "Processes of each node, one for each GPU; a batch is that of all of them, whatever their number.",
        placement="launcher",
    )
    schedule: Literal["cosine", "linear", "wsd", "constant"] = setting(
        "cosine", "Learning rate after the warm-up; wsd falls over the last fifth."
    )
    beta1: Number = setting(0.9, "First beta of AdamW.", ge=0, lt=1)
    beta2: Number = setting(0.95, "Second beta of AdamW.", ge=0, lt=1)
    gradient_clipping: Number = setting(1.0, "Largest norm of the gradient; 0 does not clip.", ge=0, le=1000)
    checkpoint_every: int = setting(
        200,
        "Steps between checkpoints, to resume from after an interruption; 0 writes none but at a signal.",
        ge=0,
        le=1000000,
        placement=True,
    )
    keep_every: int = setting(
        0,
        "Write a checkpoint every n-th step too, and keep it after the end, for compress.merge; 0 keeps none.",
        ge=0,
        placement=True,
    )
    max_skipped_steps: int = setting(
        10,
        "Most steps whose update is skipped, since the loss or the gradient is not finite; one more ends the "
        "run with an error.",
        ge=0,
        placement=True,
    )


class TextTrainingSettings(AdamWSettings):
    """Of a model that is trained on windows of the training text: pretrain.continue, compress.prune and compress.distil."""

    batch_tokens: int = setting(
        2048, "Tokens of an optimizer step over all processes, a multiple of the model's context.", ge=1, le=1000000000
    )
    micro_batch: BatchSize = setting(8, "Most windows that a process takes at once.")
    validation_tokens: int = setting(
        50000,
        "Validation tokens on which the loss before and after the training is measured, as whole documents "
        "chosen by hash.",
        ge=1,
        le=1000000000000,
    )
    learning_rate: Number = setting(
        0.001,
        "Peak learning rate of AdamW, which falls to 0; about that of the end of the pre-training, or higher "
        "the more was taken out.",
        gt=0,
        le=1,
    )
    warmup: Number = setting(0.05, "Share of the steps that the learning rate rises over.", ge=0, lt=1)
    weight_decay: Share = setting(0.1, "Weight decay of AdamW, on matrices; not on embeddings, norms and biases.")
    precision: Precision = setting(
        "fp32", "Arithmetic of the forward and backward pass; master weights and optimizer are fp32."
    )
    zero_stage: Literal[0, 1, 2, 3] = setting(
        0, "What the processes share out, as in finetune.train; pruned by `magnitude` or `2:4` only 0."
    )
    seed: Seed = setting(0, "Seed of the order of the windows and of the choice of validation documents.")
    step_timeout: int = setting(
        600,
        "Seconds that a process waits for the others in a step, or for the model to begin with.",
        ge=10,
        placement=True,
    )


class TuningSettings(TrainingSettings, AdamWSettings):
    """Of every training on pairs. Those without a default here have one in each step."""

    epochs: Number
    batch_size: int
    micro_batch: int
    max_length: int
    learning_rate: Number
    warmup: Number
    weight_decay: Number
    seed: int
    precision: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32",
        "Arithmetic of the forward and backward pass; master weights and optimizer are fp32. fp16 has dynamic "
        "loss scaling.",
    )
    zero_stage: Literal[0, 1, 2, 3] = setting(
        1,
        "What the processes share out (ZeRO, arXiv:1910.02054): 1 the optimizer, 2 the gradients too, 3 the "
        "weights too; 0 nothing. 3 for a model that is too large for one GPU.",
    )
    async_checkpoints: bool = setting(
        False, "Training goes on while a checkpoint is written, as in pretrain.train. For engine torch.", placement=True
    )
    tensorboard: bool = setting(False, "Write TensorBoard's event files beside the checkpoints.", placement=True)
    wandb: Literal["disabled", "offline", "online"] = setting(
        "disabled", "Weights & Biases; offline writes beside the checkpoints, for `wandb sync`.", placement=True
    )


class AdapterSettings(Settings):
    """Of what may train an adapter in the place of a model."""

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


class PairTrainingSettings(TuningSettings, AdapterSettings):
    """Which pairs finetune.train trains on, and how it lays them out in a batch."""

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
