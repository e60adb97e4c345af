"""Types of keys that several stages and filters have: texts of a form that is declared once."""

from __future__ import annotations

from typing import Annotated

from crawl2llm.core.settings import Allowed

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
