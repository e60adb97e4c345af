"""Keys that every filter has that takes passages out of texts: declared once."""

from crawl2llm.core.settings import setting

MIN_WORDS_LEFT = setting(
    50,
    "Fewest words that are left, 50 as in datatrove.",
    source="min_doc_words in pipeline/dedup/exact_substrings.py and sentence_dedup.py",
    ge=0,
)
MAX_REMOVED = setting(
    None,
    "Largest share of the characters that may be taken out; null sets none. RefinedWeb drops documents "
    "where its line rules flag more than 0.05 of the words.",
    source="arXiv:2306.01116, appendix G.2",
    ge=0,
    le=1,
)
