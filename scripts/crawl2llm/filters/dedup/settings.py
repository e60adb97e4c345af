"""The settings of the filter dedup."""

from typing import Literal

from crawl2llm.core.setting_types import Seed
from crawl2llm.core.settings import NonEmpty, Number, Settings, section, setting


class SignatureSettings(Settings):
    """Text hashes and MinHash bands."""

    shingle_words: int = setting(
        5,
        "Words of a shingle (FineWeb, datatrove examples/fineweb.py); a character counts as a word in scripts "
        "without spaces.",
        ge=1,
        le=100,
    )
    numbers: Literal["zero", "keep", "dense"] = setting(
        "dense",
        "How numbers count. `zero`: each is the same `0`, as in datatrove (FineWeb), so tables of numbers are "
        "near-duplicates of each other. `keep`: they are compared with their digits and sign, so copies of a "
        "page that differ in a few numbers stay. `dense`: kept in texts of whose tokens at least 20 % are "
        "numbers, else `0`.",
        unless_default=True,
    )
    permutations: int = setting(112, "MinHash permutations; must be bands × rows.", source="FineWeb", ge=1, le=4096)
    bands: int = setting(
        14,
        "Bands of a signature; documents that agree in one are candidates (FineWeb). Also the number of tasks "
        "of dedup.band.",
        ge=1,
        le=99,
    )
    rows: int = setting(8, "Minima of a band.", source="FineWeb", ge=1, le=64)
    seed: Seed = setting(1, "Seed of the permutations.", source="datasketch's default")


class ExactSettings(Settings):
    """Finds byte-equal texts."""

    earlier: list[NonEmpty] = setting(
        [],
        "Folders from `dedup.export` of other runs with equal `dedup.signature` settings. This run's duplicates of "
        "their documents are dropped.",
        unique=True,
        file="manifests",
    )


class BandSettings(Settings):
    """Candidate pairs of each band."""

    max_candidates: int = setting(
        64,
        "Most partners of a document in a bucket, by priority, so that large buckets take linear time; omitted pairs "
        "are counted.",
        ge=1,
        le=65536,
    )


class SetsSettings(Settings):
    """Makes the shingle sets of the documents in candidate pairs."""


class VerifySettings(Settings):
    """Measures the Jaccard similarity of every candidate pair."""


class SelectSettings(Settings):
    """Which duplicates go."""

    threshold: Number = setting(
        0.8, "Least Jaccard similarity of a near-duplicate.", source="Lee et al. 2022, arXiv:2107.06499", gt=0, le=1
    )
    exact: bool = setting(True, "Drop byte-equal texts; if false they share their keeper's fate.")
    near: bool = setting(True, "Drop verified near-duplicates.")


class ExportSettings(Settings):
    """Writes the signals and the shingle sets of the corpus, for `dedup.exact.earlier` of later runs."""

    write: bool = setting(
        False, "Write signals and shingle sets to `dedup/export` of the results: about 8 bytes a word."
    )


class DedupSettings(Settings):
    """Exact and near duplicates over all shards."""

    signature: SignatureSettings = section()
    exact: ExactSettings = section()
    band: BandSettings = section()
    sets: SetsSettings = section()
    verify: VerifySettings = section()
    select: SelectSettings = section()
    export: ExportSettings = section()
