"""Bits per byte of general compressors, beside those of models: what a text is worth to one who knows no language."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence

import zstandard

LEVEL = 19  # of zstd, the highest without more memory for the reader
DICTIONARY = 112_640  # bytes, zstd's own default (`zstd --train`, --maxdict)
# Bytes of training text for it: "about 100x the target dictionary size" (zstd's lib/zdict.h).
SAMPLES = 100 * DICTIONARY


def xz_bits_per_byte(texts: Iterable[bytes]) -> float | None:
    """Bits per byte of all texts as one stream, by xz -9e. None without a byte."""
    compressor, size, out = lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME), 0, 0
    for text in texts:
        size += len(text)
        out += len(compressor.compress(text))
    return 8 * (out + len(compressor.flush())) / size if size else None


def zstd_bits_per_byte(texts: Iterable[bytes], samples: Sequence[bytes]) -> tuple[float | None, int]:
    """(bits per byte of each text by itself, by zstd with a dictionary trained on `samples`; bytes of the dictionary).

    The dictionary does not count, as a model's weights do not. It has 0 bytes where the samples are too few for one.
    """
    try:
        dictionary = zstandard.train_dictionary(DICTIONARY, list(samples))
    except zstandard.ZstdError:  # too few or too short samples
        dictionary = None
    if dictionary:
        dictionary.precompute_compress(level=LEVEL)
    compressor = zstandard.ZstdCompressor(
        level=LEVEL, dict_data=dictionary, write_content_size=False, write_dict_id=False, write_checksum=False
    )
    size = out = 0
    for text in texts:
        size += len(text)
        out += len(compressor.compress(text))
    return 8 * out / size if size else None, len(dictionary.as_bytes()) if dictionary else 0
