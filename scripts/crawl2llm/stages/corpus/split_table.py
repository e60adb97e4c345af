"""The table that corpus.split writes and corpus.write reads: the side of every document that all filters kept."""

import pyarrow as pa

SPLIT_TABLE = pa.schema(
    [
        ("id", pa.string()),
        ("split", pa.string()),
        ("duplicate_of", pa.string()),  # of a training document that was dropped: the validation document
        ("similarity", pa.float64()),  # and the Jaccard similarity of their shingle sets
    ]
)
LEAK = "near_validation"  # the rule that drops a near-duplicate
# Those of corpus.heldout, for a variant that is measured on what main holds out:
DOCUMENT_HELD = "heldout_document"
ORIGIN_HELD = "heldout_origin"
NEAR_HELD = "near_heldout"
