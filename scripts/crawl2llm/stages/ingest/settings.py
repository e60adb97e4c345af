"""The settings of the stage ingest."""

from typing import Annotated, Any, Literal

from crawl2llm.chain.run_settings import FilterName
from crawl2llm.core.setting_types import SourceName
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, optional, section, setting


class ListSettings(Settings):
    """Lists the remote files of sources, of a crawl or at URLs, before they are read. No keys; runs if a source has such files."""


class FetchSettings(Settings):
    """Copies remote files to the disk before they are read, where the workflow was started, for compute nodes without a
    network.
    """

    enabled: bool = setting(False, "Copy the files of all remote sources below results/ first. It changes no document.")
    parallel: int = setting(4, "Files of a shard that are copied at the same time.", ge=1, le=64, placement=True)


class TextSource(Settings):
    """Settings of files of texts."""

    name: SourceName = setting(..., "The source's name, which every document of it bears.")
    kind: str = setting()
    unwrap: bool | None = optional("Kind text: join hard-wrapped lines.")
    chunk_words: int | None = optional(
        "Kind text: words per piece of a long text, cut between paragraphs; a longer paragraph is cut between lines.",
        ge=0,
    )
    preset: (
        Literal["fineweb", "c4", "pile", "dolma", "redpajama", "wikipedia", "wikipedia-structured", "code"] | None
    ) = optional(
        "Kinds jsonl and parquet: the layout of a known data set (docs/stages/ingest.md). Kind text: `code` keeps "
        "indentation and blank lines."
    )
    text_key: NonEmpty | None = optional("Column of the text (`meta.text` is nested); overrides the preset's.")
    id_key: NonEmpty | None = optional("Column of the id, likewise.")
    url_key: NonEmpty | None = optional("Column of the address, likewise.")
    date_key: NonEmpty | None = optional("Column of the date, likewise.")
    metadata_keys: list[NonEmpty] | None = optional("Columns to put into the metadata, likewise.", unique=True)


class ExtractSource(TextSource):
    """A source of documents."""

    kind: Literal["crawl", "warc", "text", "jsonl", "parquet", "commoncrawl", "synthesized"] = setting(
        ...,
        "`crawl` is the demo's crawl; `warc` reads WARC, WET and ARC; `commoncrawl` files of Common Crawl; "
        "`synthesized` texts that a model writes.",
    )
    step: Literal["synthesize.rephrase", "synthesize.seed"] | None = optional(
        "Kind synthesized: the step that writes them."
    )
    # What the files are called and hold is tracked, not how they are found.
    paths: list[NonEmpty] | None = optional(
        "Files, globs or `@list.txt` (one path a line), or URLs (https, s3, hf; also globs, at a web server if it lists its files, "
        "`@URL` of a list, `@list.txt` of URLs).",
        min_length=1,
        placement=True,
    )
    crawl: str | None = optional(
        "Of commoncrawl: the crawl.",
        pattern="^CC-MAIN-[0-9]{4}(-[0-9]{2,4})?$",
        form="the name of a crawl, such as CC-MAIN-2026-05",
        placement=True,
    )
    format: Literal["warc", "wet", "arc"] | None = optional("Of commoncrawl; without it: warc.", placement=True)
    files: int | None = optional(
        "Kind commoncrawl: number of files, chosen by hash; without it and `share`: all.", ge=1, placement=True
    )
    share: Number | None = optional("Kind commoncrawl: share of the files, chosen by hash.", gt=0, le=1, placement=True)
    base: NonEmpty | None = optional(
        "Kind commoncrawl: URL or folder of a mirror; without it: https://data.commoncrawl.org/.", placement=True
    )
    options: dict[str, Any] | None = optional(
        "Options of fsspec's file system, with `{env:NAME}` or `{file:PATH}` for credentials.",
        placement=True,
        secret=True,
    )
    allowed_hosts: (
        list[
            Annotated[
                str,
                Allowed(pattern=r"^(\*\.)?[A-Za-z0-9.:_-]+$", form="a host, such as cdn.example.org, or *.example.org"),
            ]
        ]
        | None
    ) = optional(
        "Further hosts, besides those in `paths` and `base`, allowed in redirects and lists; without it: any.",
        min_length=1,
        placement=True,
    )
    patience: Number | None = optional("Seconds to wait for a server that is busy.", ge=1, placement=True)
    follow_links: bool | None = optional(
        "Whether a pattern may match files outside its folder by symbolic links.", placement=True
    )
    first_mb: Number | None = optional("Megabytes to read from the beginning of each file.", gt=0)
    curated: bool | None = optional(
        "Skip the filters that judge quality (docs/stages/ingest.md), and train the quality classifier to prefer its "
        "documents."
    )
    # The two below: documents are read alike. The filters are told which sources skip them (`exempts` in their steps.py).
    licence: NonEmpty | None = optional("Licence of its texts, for the card of an exported model.", placement=True)
    skip_filters: list[FilterName] | None = optional(
        "Filters that keep its documents whatever they measure.", unique=True, placement=True
    )


class ExtractSettings(Settings):
    """WARC, WET, ARC, text, JSON Lines and Parquet into documents."""

    shards: int = setting(
        4,
        "Shards of the input files, by a hash of their names, for all stages. A task takes 8 shards, or more to stay "
        "below 257 tasks.",
        ge=1,
        le=4096,
    )
    sources: list[ExtractSource] = setting(
        [{"name": "demo", "kind": "crawl"}, {"name": "reference", "kind": "crawl", "curated": True}],
        "Where pages come from, in order.",
        min_length=1,
    )
    extractor: Literal["fast", "resiliparse", "trafilatura"] = setting(
        "fast",
        "Extractor of the main text of HTML. `fast` judges each block by forests that are fitted on pages with gold "
        "text; `trafilatura` is installed by hand (`pip install trafilatura==2.3.1 "
        "lxml_html_clean==0.4.6`) and takes 13 to 24 times as long.",
    )
    markup: Literal["text", "markdown"] = setting(
        "text",
        "How the text of HTML is written: plain, or as Markdown (headings, lists, tables, code, quotes). "
        "`resiliparse` writes plain text only.",
    )
    main_content: bool = setting(True, "Extract main content only, not navigation and footers.")
    respect_noindex: bool = setting(
        True, "Drop pages whose X-Robots-Tag header or robots meta tag contains noindex or none."
    )
    licence: bool = setting(
        False,
        "Write the licence that a page's HTML names into its metadata, for the filter `licence`: by "
        "rel=license, in meta tags and JSON-LD, or by a link (scripts/crawl2llm/stages/ingest/licences.py).",
        unless_default=True,
    )
    min_characters: int = setting(1, "Least characters of extracted text for a document.", ge=1)
    max_missing_files: int = setting(
        0, "Most remote files of a shard that may be missing; each is counted. One more, and the task fails.", ge=0
    )
    max_damaged: int | None = setting(
        None, "Most places of damage in the files of a shard; null is any number. One more, and the task fails.", ge=0
    )
    max_body_bytes: int = setting(20000000, "Larger bodies (before or after decompression) are dropped.", ge=1024)


class CheckSettings(Settings):
    """Proves that ids are unique over all shards, and finds records that the crawl holds more than once. It has no keys."""


class IngestSettings(Settings):
    """Reads the sources and extracts main text."""

    list: ListSettings = section()
    fetch: FetchSettings = section()
    extract: ExtractSettings = section()
    check: CheckSettings = section()
