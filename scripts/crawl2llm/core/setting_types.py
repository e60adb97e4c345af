"""Types of keys, and sections, that several stages and filters have, each declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, setting

Seed = Annotated[int, Allowed(ge=0, le=4294967295)]  # of 32 bits, which every generator takes
Share = Annotated[Number, Allowed(ge=0, le=1)]
Threads = Annotated[int, Allowed(ge=1, le=1024)]
BatchSize = Annotated[int, Allowed(ge=1, le=4096)]  # of what a model takes at once
Precision = Literal["fp32", "bf16"]
Device = Literal["auto", "cpu", "cuda"]

LanguageCode = Annotated[
    str, Allowed(pattern="^[a-z]{2,3}$", form="codes of languages of two or three small letters, such as en")
]
LanguageLabel = Annotated[
    str, Allowed(pattern="^[A-Za-z_-]{2,}$", form="labels of the language model, such as fi or fin_Latn")
]
ColumnName = Annotated[
    str, Allowed(pattern="^[a-z][a-z0-9_]*$", form="a name of small letters, digits and _, a letter first")
]
PromptName = Annotated[
    str, Allowed(pattern="^[a-z][a-z0-9_-]*$", form="names of small letters, digits, _ and -, a letter first")
]
SourceName = Annotated[str, Allowed(pattern="^[a-z0-9_-]+$", form="a name of small letters, digits, _ and -")]
SecretPlace = Annotated[
    str,
    Allowed(pattern="^([A-Za-z_][A-Za-z0-9_]*|file:.+)$", form="name of an environment variable, or file:PATH"),
]
PublicTask = Literal[
    "hellaswag",
    "arc_easy",
    "arc_challenge",
    "piqa",
    "winogrande",
    "lambada",
    "boolq",
    "openbookqa",
    "copa",
    "commonsense_qa",
    "sciq",
    "siqa",
    "mmlu",
    "mmlu_cloze",
    "triviaqa",
    "gsm8k",
    "humaneval",
    "humaneval_instruct",
    "blimp",
    "core",
]


# Of every step that scores a model, beside keys that come first in its section:
PRECISION = setting("fp32", "Arithmetic of the model; bf16 is for GPUs.")
THREADS = setting(2, "CPU threads; they decide the last digits of sums on a CPU.")


class EndpointSettings(Settings):
    """An OpenAI-compatible endpoint, and how it is asked (core/endpoint.py)."""

    model: NonEmpty | None = setting(None, "Name of the model, as its endpoint calls it; null asks none.")
    endpoint: NonEmpty = setting(
        "http://127.0.0.1:8000/v1", "Where the model is asked: <endpoint>/chat/completions.", placement=True
    )
    key: SecretPlace | None = setting(
        None,
        "Name of the environment variable with the endpoint's key, or `file:PATH` of a file that only its owner "
        "can read (mode 0600). The key is written nowhere; null sends none.",
        placement=True,
        secret=True,
    )
    requests: int = setting(4, "Requests at the same time.", ge=1, le=256, placement=True)
    attempts: int = setting(
        6,
        "Attempts at a request before the step fails, half a second apart at first and twice as long each time, "
        "up to 30.",
        ge=1,
        le=100,
        placement=True,
    )
    seconds: Number = setting(120, "Most seconds that a request waits for an answer.", gt=0, le=86400, placement=True)
    cache: NonEmpty = setting(
        ".cache/judge",
        "Folder of the replies, by a hash of what was asked; an existing reply is not requested again.",
        placement=True,
    )
