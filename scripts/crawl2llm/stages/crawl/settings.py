"""The settings of the stage crawl."""

from typing import Annotated

from crawl2llm.core.settings import Allowed, Number, Settings, section, setting


class RenderSettings(Settings):
    """Renders pydoc HTML and the project's own pages as WARC 1.1 files."""

    files: int = setting(4, "WARC files to write.", ge=1, le=1000)
    standard_library: bool = setting(True, "Whether to document the public modules of Python's standard library.")
    packages: list[
        Annotated[
            str, Allowed(pattern="^[A-Za-z_][A-Za-z0-9_]*$", form="a name of letters, digits and _, no digit first")
        ]
    ] = setting(
        [
            "numpy",
            "scipy",
            "pandas",
            "pyarrow",
            "networkx",
            "sympy",
            "sklearn",
            "matplotlib",
            "PIL",
            "nltk",
            "jinja2",
            "click",
            "docutils",
            "pygments",
            "rich",
            "tqdm",
            "requests",
            "urllib3",
            "aiohttp",
            "huggingface_hub",
            "fsspec",
            "joblib",
            "jsonschema",
            "more_itertools",
            "mpmath",
            "packaging",
            "traitlets",
            "attr",
            "git",
        ],
        "Installed packages to document, by import name. A missing package is an error; a missing package of the "
        "default is skipped and counted.",
        unique=True,
    )
    max_pages_per_package: int = setting(1000, "Most modules of one package, the first in alphabetical order.", ge=1)
    max_page_kilobytes: int = setting(2000, "Longest HTML of one module; a longer page is dropped.", ge=10)
    max_megabytes: int = setting(100, "Most HTML in all; pages that would go beyond it are dropped.", ge=1)
    module_seconds: Number = setting(60, "Time after which a module that hangs is dropped.", gt=0)
    workers: int = setting(2, "Processes that render modules.", ge=1, le=64, placement=True)


class CrawlSettings(Settings):
    """The demo's crawl of this machine's own documentation (source kind `crawl`)."""

    render: RenderSettings = section()
