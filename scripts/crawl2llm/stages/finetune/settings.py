"""The settings of the stage finetune."""

from typing import Literal

from crawl2llm.core.setting_types import Seed, Share
from crawl2llm.core.settings import NonEmpty, Number, Settings, section, setting
from crawl2llm.training.pair_settings import PairsFile, PairsPattern
from crawl2llm.training.shared_settings import PairTrainingSettings


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
    seed: Seed = setting(0, "Seed of every choice of this step.")


class TrainSettings(PairTrainingSettings):
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
    warmup: Number = setting(0.03, "Share of the steps that the learning rate rises over.", source="Alpaca", ge=0, lt=1)
    weight_decay: Share = setting(
        0, "Weight decay of AdamW, on matrices; not on embeddings, norms and biases.", source="Alpaca has none"
    )
    loss_chunk: int = setting(
        0,
        "Answers' tokens whose logits are in memory at once in training; 0: those of the whole micro-batch, prompts "
        "among them. With 1024 or so a large vocabulary takes little memory; the last digits differ.",
        ge=0,
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
    seed: Seed = setting(0, "Seed of the order of the pairs.")


class FinetuneSettings(Settings):
    """Question and answer pairs from the corpus, and supervised fine-tuning on them."""

    pairs: PairsSettings = section()
    train: TrainSettings = section()
