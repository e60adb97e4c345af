"""The settings of the filter sourcecode."""

from typing import Annotated

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, section, setting


class ScoreSettings(Settings):
    """Measures the documents that are code; what is no code is not measured and stays."""

    sources: list[NonEmpty] = setting([], "Sources whose documents are all code.", unique=True)
    extensions: list[
        Annotated[
            str, Allowed(pattern="^[a-z0-9_+-]+$", form="ends of names without the dot, in small letters, such as py")
        ]
    ] = setting(
        [], "Ends of names of files that are code in any source, as [py, js], by a document's path or URL.", unique=True
    )


class SelectSettings(Settings):
    """Compares the measures with thresholds; documents of curated sources stay."""

    lines_max: int | None = setting(100000, "Most lines of a file.", source="StarCoder 2, arXiv:2402.19173", ge=1)
    longest_line_max: int | None = setting(
        1000,
        "Longest line in characters.",
        source="StarCoder, arXiv:2305.06161; bigcode-dataset preprocessing/filtering.py",
        ge=1,
    )
    data_longest_line_max: int | None = setting(
        100000,
        "Longest line of languages of long lines, such as HTML, JSON, Markdown and TeX, whose mean does not count.",
        source="StarCoder 2",
        ge=1,
    )
    mean_line_max: Number | None = setting(
        100, "Mean length of lines in characters.", source="StarCoder; bigcode-dataset preprocessing/filtering.py", gt=0
    )
    alphanumeric_min: Share | None = setting(
        0.25, "Least share of letters and digits.", source="StarCoder; bigcode-dataset preprocessing/filtering.py"
    )
    alphabetic_min: Share | None = setting(0.25, "Least share of letters.", source="StarCoder 2")
    encoded_run_max: int | None = setting(
        1024, "Longest run of base64, of bytes in hexadecimal or of \\u escapes, in bytes.", source="StarCoder 2", ge=64
    )
    encoded_share_max: Share | None = setting(0.5, "Share of a file that is such runs.", source="StarCoder 2")
    generated: bool = setting(
        True, "Drop files whose first five lines say that a program wrote them.", source="StarCoder 2"
    )
    licences: list[NonEmpty] = setting(
        [],
        "Licences that an SPDX header may name, as [MIT, Apache-2.0]; files without a header stay. [] allows all.",
        unique=True,
    )


class SourcecodeSettings(Settings):
    """Source files that nobody wrote to be read, among the documents that are code. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
