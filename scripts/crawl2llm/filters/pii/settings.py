"""The settings of the filter pii."""

from typing import Annotated, Literal, get_args

from crawl2llm.core.setting_types import LanguageCode
from crawl2llm.core.settings import Allowed, Settings, section, setting

Kind = Literal[
    "secret",
    "url_credentials",
    "email_address",
    "iban",
    "card_number",
    "national_id",
    "ip_address",
    "phone_number",
]
KINDS: list[str] = list(get_args(Kind))
PersonalData = Annotated[
    str,
    Allowed(
        pattern=f"^({'|'.join(KINDS)})$",
        form=f"kinds of personal data: {', '.join(KINDS[:-1])} or {KINDS[-1]}",
    ),
]


class ScoreSettings(Settings):
    """Finds the places of personal data in every document."""

    kinds: list[Kind] = setting(
        KINDS,
        "Kinds to find. Dolma (arXiv:2402.00159, on content filtering) has e-mail addresses, IP addresses "
        "and phone numbers, FineWeb (datatrove formatters/pii.py) e-mail and public IP addresses, StarCoder "
        "(arXiv:2305.06161, section 4) also keys.",
        unique=True,
    )
    regions: dict[
        LanguageCode,
        Annotated[
            list[
                Annotated[
                    str, Allowed(pattern="^[A-Z]{2}$", form="a code of a country of two capital letters, such as DE")
                ]
            ],
            Allowed(unique=True),
        ],
    ] = setting(
        {},
        "Countries whose phone numbers without + are searched for, by language, replacing the built-in list "
        "(scripts/crawl2llm/filters/pii/phones.py); [] searches for none.",
    )


class SelectSettings(Settings):
    """Replaces finds by placeholders, and drops documents with too many; documents of curated sources stay."""

    actions: dict[
        PersonalData,
        Literal["mask", "drop", "keep"],
    ] = setting(
        {},
        "By kind: `mask` replaces it by a placeholder, `drop` drops the document, `keep` leaves it. Kinds not named "
        "are masked.",
    )
    placeholder: str = setting(
        "<{kind}>",
        "Placeholder; `{kind}` is the kind in capitals, such as EMAIL_ADDRESS. Dolma uses `|||{kind}|||`.",
        source="dolma taggers/pii.py",
    )
    replacements: dict[
        PersonalData,
        str,
    ] = setting(
        {},
        "Another placeholder by kind, as {email_address: email@example.com, ip_address: 22.214.171.124}: of "
        "FineWeb's (datatrove formatters/pii.py) the first.",
    )
    drop_from: int = setting(
        1, "Least number of finds of a `drop` kind that drops the document; fewer are masked.", ge=1
    )
    total_max: int | None = setting(
        None,
        "Most finds of all kinds, except kept kinds; a document with more is dropped. Dolma: 5 (arXiv:2402.00159, on "
        "content filtering); null: no limit.",
        ge=0,
    )


class PiiSettings(Settings):
    """Personal data in texts, replaced by placeholders; documents with too much of it dropped. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
