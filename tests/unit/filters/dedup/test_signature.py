"""dedup.signature: equal to datasketch, and clear about settings that do not fit."""

import pytest
import xxhash
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.text.minhash import MinHasher
from crawl2llm.text.shingles import normalise, shingle_hashes, shingles
from crawl2llm.text.signatures import compute_signals

WORDS = st.lists(
    st.sampled_from(["the", "a", "fox", "dog", "run", "7", "straße", "東京", "of"]), min_size=1, max_size=60
).map(" ".join)


@settings(deadline=None)
@given(
    st.lists(WORDS, max_size=4),
    st.integers(1, 6),
    st.sampled_from([(112, 14, 8), (20, 5, 4)]),
    st.integers(0, 2**32 - 1),
)
def test_signatures_are_datasketch_s(texts: list[str], k: int, shape: tuple[int, int, int], seed: int) -> None:
    normals = [normalise(text) for text in texts]
    hasher = MinHasher(*shape, seed)
    signatures = hasher.signatures(*shingle_hashes(normals, k))
    assert signatures.shape == (len(texts), shape[0])
    for normal, signature in zip(normals, signatures, strict=True):
        theirs = MinHash(num_perm=shape[0], seed=seed, scheme="affine32", hashfunc=xxhash.xxh32_intdigest)
        for run in shingles(normal, k):
            theirs.update(run)
        assert signature.tolist() == theirs.hashvalues.tolist()
        rows = shape[2]
        bands = [xxhash.xxh3_64_intdigest(theirs.hashvalues[i : i + rows].tobytes()) for i in range(0, shape[0], rows)]
        assert hasher.band_hashes(signature) == bands


def test_signals() -> None:
    hasher = MinHasher(112, 14, 8, 1)
    short, long, none = compute_signals(["One two!", "a b c d e f a b c d e", "…"], 5, hasher)
    assert (short["words"], short["shingles"]) == (2, 1)
    assert (long["words"], long["shingles"]) == (11, 6)
    assert (none["words"], none["shingles"], none["band_00"], none["band_13"]) == (0, 0, None, None)
    assert short["text_hash"] == xxhash.xxh3_128_digest(b"One two!")
    assert compute_signals(["one TWO"], 5, hasher)[0]["band_03"] == short["band_03"]
    assert compute_signals(["…", ""], 5, hasher)[1]["band_03"] is None
    assert compute_signals([], 5, hasher) == []


def test_bands_times_rows_must_be_permutations() -> None:
    with pytest.raises(InputError, match="14 × 8 = 112, but permutations is 128"):
        MinHasher(128, 14, 8, 1)
