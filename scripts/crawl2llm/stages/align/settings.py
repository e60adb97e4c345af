"""The settings of the stage align."""

from typing import Literal

from crawl2llm.core.setting_types import EndpointSettings, Seed, Share
from crawl2llm.core.settings import NonEmpty, Number, Settings, optional, section, setting
from crawl2llm.training.shared_settings import AdapterSettings, TuningSettings


class PairsFile(Settings):
    """A file of pairs, of labelled answers or of prompts."""

    path: NonEmpty = setting()
    layout: Literal["preference", "labels", "prompts"] | None = optional()
    heldout: Share | None = optional()


class RewardEntry(Settings):
    """What scores an answer."""

    reward: Literal["exact", "format", "length", "model", "endpoint"] | None = optional()
    function: NonEmpty | None = optional()
    name: NonEmpty | None = optional()
    manifest: NonEmpty | None = optional()
    pattern: NonEmpty | None = optional()
    least: int | None = optional(ge=0, le=100000)
    most: int | None = optional(ge=0, le=100000)
    weight: Number | None = optional(ge=-1000, le=1000)


class PairsJudge(EndpointSettings):
    """The model behind an OpenAI-compatible endpoint that judges answers where an entry of `rewards` is `{reward: endpoint}`."""

    model: NonEmpty | None = setting(None, "Name of the judge at the endpoint.", unless_default=True)
    prompt: str = setting(
        "Question: {question}\nAnswer to judge: {answer}\n\nHow good is the answer to judge, from 1 (wrong or "
        "useless) to 10 (as good as can be)? Reply with the number alone.",
        "What the judge is asked, with `{question}`, `{answer}` and, where all is to be compared with a row's "
        "own answer, `{reference}`. The last number of its reply is the score (of `7/10` or `7 out of 10` the "
        "7).",
        pattern=r"\{answer\}",
        form="text with {answer}",
        unless_default=True,
    )
    scale: list[Number] = setting(
        [1, 10],
        "Lowest and highest score; an answer whose reply has another number, or none, is counted and left out.",
        min_length=2,
        max_length=2,
        unless_default=True,
    )
    max_tokens: int = setting(16, "Longest reply in tokens.", ge=1, le=65536, unless_default=True)


class PairsSettings(Settings):
    """Reads preferences, labelled answers or prompts, and holds some questions out."""

    files: list[PairsFile] = setting(
        [],
        "Files: JSON Lines or JSON, bare or as .gz or .zst. `layout`: `preference` (the default: `prompt`, "
        "`messages` or `conversations`, with `chosen` and `rejected`), `labels` (`messages`, or `prompt` and "
        "`completion`, with `label` true or false), or `prompts` (`prompt`, perhaps `answer`). `heldout`: share "
        "of the questions that are held out (0.05). [] takes the questions of finetune.pairs as prompts.",
        unique=True,
        file=True,
    )
    from_: str | None = setting(
        None,
        "A model, `base` or one of `models` that is not aligned: it answers each question of the rows `answers` "
        "times, and of its answers the one that `rewards` like best and the one that they like least are a "
        "preference. null takes the rows as they are.",
        alias="from",
    )
    answers: int = setting(8, "With from: answers to each question.", ge=2, le=1024)
    temperature: Number = setting(1, "With from: what logits are divided by.", gt=0, le=10)
    max_new_tokens: int = setting(32, "With from: most tokens of an answer.", ge=1, le=65536)
    rewards: list[RewardEntry] = setting(
        [],
        "With from: what an answer is worth, as in align.train.rewards; a reward model by its `manifest` alone, "
        "that of another run, since one of this run (`name`) learns from this step. `endpoint`: the score by "
        "`judge`.",
        unique=True,
        file="function",
    )
    judge: PairsJudge = section(unless_default=True)
    threads: int = setting(2, "With from: CPU threads; they decide the last digits of sums on a CPU.", ge=1, le=1024)
    max_answer_words: int | None = setting(
        None,
        "Longest answer in words of a row of `files`; rows with longer ones are dropped before `max_train` counts.",
        ge=1,
        le=1000000,
        unless_default=True,
    )
    max_train: int = setting(
        20000, "Most rows of each layout to train on, chosen by hash; they are held in memory.", ge=1, le=10000000
    )
    max_heldout: int = setting(500, "Most held-out rows of each layout, chosen by hash.", ge=1, le=100000)
    seed: Seed = setting(0, "Seed of every choice of this step.")


class RowTrainingSettings(TuningSettings):
    """What both trainings have."""

    epochs: Number = setting(1, "Passes over the training rows.", gt=0, le=1000)
    max_length: int = setting(
        128, "Longest question with its answer in tokens; what is beyond is cut.", ge=8, le=1048576
    )
    warmup: Number = setting(0.1, "Share of the steps that the learning rate rises over.", ge=0, lt=1)
    weight_decay: Share = setting(
        0, "Weight decay of AdamW, on matrices; not on embeddings, norms and biases.", source="TRL has none"
    )
    seed: Seed = setting(0, "Seed of the order of the rows.")


class RewardSettings(RowTrainingSettings):
    """Trains a reward model on pairs of answers of which one is preferred, by the engines of pretrain.train. It gives an
    answer a score; it is no language model.
    """

    center_rewards: Number = setting(
        0,
        "What the square of the sum of a pair's two scores adds to the loss, which keeps scores around 0 "
        "(arXiv:2312.09244; center_rewards_coefficient of TRL, where 0.01 is advised). 0 adds nothing.",
        ge=0,
        le=100,
    )
    measure_every: int = setting(0, "As in align.train.", ge=0, le=1000000, placement=True)
    batch_size: int = setting(
        32,
        "Pairs of an optimizer step over all processes; the last step takes what is left of the epochs.",
        ge=1,
        le=65536,
    )
    micro_batch: int = setting(
        16,
        "Most pairs that a process takes at once, each two sequences; gradients are accumulated up to batch_size.",
        ge=1,
        le=4096,
    )
    learning_rate: Number = setting(
        0.0001,
        "Peak learning rate of AdamW; 1e-4 to 1e-3 suit a demo of 0.6M parameters, 1e-4 is TRL's default.",
        gt=0,
        le=1,
    )


class TrainSettings(RowTrainingSettings, AdapterSettings):
    """Aligns a model by preferences, or by rewards of its own answers, by the engines of pretrain.train. The model that it is
    made from is the reference.
    """

    method: Literal["dpo", "kto", "grpo", "rloo", "reinforce", "ppo"] = setting(
        "dpo",
        "dpo: pairs of answers, of which one is preferred (arXiv:2305.18290). kto: answers that are each good "
        "or bad (arXiv:2402.01306). grpo (arXiv:2402.03300), rloo (arXiv:2402.14740), reinforce: rewards of "
        "answers that the model gives while it trains. ppo: the same, token by token, with a second model that "
        "learns what to expect.",
        source="arXiv:1707.06347",
    )
    beta: Number = setting(
        0.1,
        "What it costs to leave the reference, of dpo and kto.",
        source="0.1 in both papers and in TRL",
        gt=0,
        le=100,
    )
    label_smoothing: Number = setting(
        0,
        "Of dpo: the probability that a preference is the wrong way round (conservative DPO); 0 trusts all.",
        ge=0,
        lt=0.5,
    )
    desirable: Number = setting(
        1,
        "Of kto: what the loss of a good answer counts. Where good and bad differ in number, desirable x good : "
        "undesirable x bad of 1:1 to 4:3 is advised.",
        source="the paper, section 4.2",
        gt=0,
        le=1000,
    )
    undesirable: Number = setting(1, "Of kto: what the loss of a bad answer counts.", gt=0, le=1000)
    rewards: list[RewardEntry] = setting(
        [],
        "Of grpo, rloo, reinforce and ppo: what an answer is worth, added up by `weight` (1). `reward: exact` "
        "(1 where the answer is the row's; with `pattern`, where its group `answer` is), `format` (1 where "
        "`pattern`, a regular expression, matches the whole answer), `length` (1 for `least` to `most` words, "
        "less the further from them), `model` (the score by a model of align.reward: `name`, one of `models`, "
        "or `manifest`, that of one of any run), or `function: path/to/file.py:name`, a Python function of "
        "question, answer and the row's answer that returns a number. The file runs as it is; what it holds is "
        "tracked, with the modules beside it that it imports.",
        unique=True,
        file="function",
    )
    generations: int = setting(
        8,
        "Of grpo, rloo, reinforce and ppo: answers drawn to each prompt (8 in TRL, 1 in its ppo); grpo and rloo "
        "compare them, and need 2.",
        ge=1,
        le=1024,
    )
    max_new_tokens: int = setting(
        32,
        "Most tokens of an answer that the model gives, within max_length; of every method for the prompts that "
        "are asked before and after.",
        ge=1,
        le=65536,
    )
    temperature: Number = setting(
        1,
        "Of grpo, rloo, reinforce and ppo: what logits are divided by where answers are drawn, and in the loss.",
        gt=0,
        le=10,
    )
    answers_at_once: int = setting(
        0,
        "Answers that a process draws at once: the row of one that has ended goes to the next prompt. More are faster, "
        "and need memory for their keys and values. 0: those of a micro-batch, which a CPU draws to the end of the "
        "longest. The last digits differ.",
        ge=0,
        le=4096,
        unless_default=True,
    )
    kl_coefficient: Number = setting(
        0.04,
        "Of grpo, rloo, reinforce and ppo: what a nat of divergence from the model that it is made from costs; "
        "grpo adds it to the loss of a token (0.04 in DeepSeekMath), ppo takes it from the reward of a token, "
        "the others from that of an answer.",
        source="0.05 in TRL's RLOO and PPO",
        ge=0,
        le=100,
    )
    passes: int = setting(
        4,
        "Of ppo: updates by the answers of a step, each by all of them.",
        source="num_ppo_epochs of TRL, 4",
        ge=1,
        le=1000,
        unless_default=True,
    )
    gamma: Number = setting(
        1,
        "Of ppo: what a reward counts one token earlier.",
        source="1 in TRL: an answer's score counts the same for all its tokens",
        gt=0,
        le=1,
        unless_default=True,
    )
    gae_lambda: Share = setting(
        0.95,
        "Of ppo: lambda of generalized advantage estimation (arXiv:1506.02438); 0 trusts the values of the next "
        "token, 1 the rewards alone.",
        source="0.95 in TRL; 0.92 to 0.99 did best in the paper, section 6",
        unless_default=True,
    )
    clip: Number = setting(
        0.2,
        "Of ppo: how far the ratio of a token's probability to that by which it was drawn counts beyond 1.",
        source="arXiv:1707.06347, section 6.1, 0.2; cliprange of TRL",
        gt=0,
        lt=1,
        unless_default=True,
    )
    value_clip: Number = setting(
        0.2,
        "Of ppo: how far a value counts beyond what it was when the answer was drawn (cliprange_value of TRL, "
        "0.2); 0 does not clip. In units of the reward.",
        ge=0,
        le=1000000,
        unless_default=True,
    )
    value_coefficient: Number = setting(
        0.1,
        "Of ppo: what the loss of the values counts beside that of the model.",
        source="vf_coef of TRL, 0.1",
        gt=0,
        le=1000,
        unless_default=True,
    )
    missing_end_penalty: Number = setting(
        0,
        "Of ppo: what is taken from the reward of an answer without an end token (missing_eos_penalty of TRL, "
        "which has none). The reward that is shown is without it.",
        ge=0,
        le=1000000,
        unless_default=True,
    )
    heldout_prompts: int = setting(
        100, "Of grpo, rloo, reinforce and ppo: most held-out prompts whose answers are measured.", ge=0, le=100000
    )
    measure_every: int = setting(
        0,
        "Steps between measurements of the held-out rows, for metrics.jsonl and the report; 0: before and after alone.",
        ge=0,
        le=1000000,
        placement=True,
    )
    batch_size: int = setting(
        32,
        "Pairs (dpo), answers (kto) or prompts (the others) of an optimizer step over all processes; the last "
        "step takes what is left of the epochs.",
        ge=1,
        le=65536,
    )
    micro_batch: int = setting(
        16,
        "Most pairs or answers that a process takes at once, a pair being two sequences, and of a prompt each "
        "answer; gradients are accumulated up to batch_size.",
        ge=1,
        le=4096,
    )
    learning_rate: Number = setting(
        0.0001,
        "Peak learning rate of AdamW; 1e-4 to 1e-3 suit a demo of 0.6M parameters and 1e-6 one of 7B.",
        source="TRL",
        gt=0,
        le=1,
    )
    loss_chunk: int = setting(
        0,
        "Of dpo and kto: the logits of that many answer tokens are in memory at once, and are computed again in "
        "the backward pass; none are computed for prompts. The other methods need all logits, so it must be 0 "
        "there. 0: those of the whole micro-batch, prompts among them. With 1024 or so a large vocabulary takes "
        "little memory; the last digits differ. Not with engine deepspeed and zero_stage 3.",
        ge=0,
        unless_default=True,
    )


class AlignSettings(Settings):
    """Preferences and prompts, and models that are aligned by them."""

    pairs: PairsSettings = section()
    reward: RewardSettings = section()
    train: TrainSettings = section()
