"""Many inputs as one entry: nothing of them is lost, and what is not alike stays apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core import manifest_ranges

TASKS = st.sampled_from(["", " 00", " 01", " 02", " 03", " 10", " 000", " 001", " 00001", " base"])
PARTS = st.sampled_from(
    ["*", "00.parquet", "01.parquet", "001.parquet", "summary:by_part/0", "summary:by/{}", "wanted/02"]
)
KEYS = st.builds(str.__add__, st.sampled_from(["dedup.sets", "dedup.band"]), TASKS)


@given(st.dictionaries(KEYS, st.dictionaries(PARTS, st.sampled_from(["aa", "bb"]), max_size=3), max_size=12))
def test_what_is_packed_is_unpacked(inputs: manifest_ranges.Inputs) -> None:
    packed = manifest_ranges.pack_ranges(inputs)
    manifest_ranges.check_ranges(packed)
    assert manifest_ranges.unpack_ranges(packed) == inputs and manifest_ranges.unpack_ranges(inputs) == inputs


def test_neighbours_of_which_the_same_was_read_are_one_entry() -> None:
    read = {f"dedup.sets {n:05d}": {f"{n:05d}.parquet": f"mark{n}"} for n in (0, 1, 2, 4)}
    more = {"dedup.exact": {"*": "x"}, "dedup.sets 00003": {}, "sources": {"files": "y"}}
    assert manifest_ranges.pack_ranges({**read, **more}) == {
        "dedup.exact": {"*": "x"},
        "dedup.sets {00000..00002}": {"{}.parquet": "mark0 mark1 mark2"},
        "dedup.sets 00003": {},
        "dedup.sets 00004": {"00004.parquet": "mark4"},
        "sources": {"files": "y"},
    }
