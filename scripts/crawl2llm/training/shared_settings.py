"""Keys that every training has, by pretrain.train, finetune.train and align: declared once."""

from crawl2llm.core.settings import setting

LOSS_SCALE_POWER = setting(
    16,
    "With precision fp16: the loss is multiplied by 2 to this power in the beginning (DeepSpeed's and "
    "torch's 65,536), halved after each overflow of the gradient.",
    ge=0,
    le=32,
    unless_default=True,
)
LOSS_SCALE_WINDOW = setting(
    1000,
    "With precision fp16: updates in a row without an overflow after which the loss scale is doubled.",
    source="DeepSpeed's default",
    ge=1,
    le=1000000,
    unless_default=True,
)
OFFLOAD_OPTIMIZER = setting(
    "none",
    "Where DeepSpeed keeps master weights and the optimizer's state, and updates them: on the GPU, in the "
    "node's memory (ZeRO-Offload, zero_stage 1 to 3), or on its disk (ZeRO-Infinity, zero_stage 3).",
    unless_default=True,
)
OFFLOAD_PARAMETERS = setting(
    "none",
    "Where DeepSpeed keeps the weights that it computes with while no layer needs them (zero_stage 3, with "
    "offload_optimizer).",
    unless_default=True,
)
OFFLOAD_PATH = setting(
    None,
    "A folder on the node's NVMe disk, for what is nvme in the two keys above; gigabytes of files are written there.",
    placement=True,
)
