"""CRC-32C, the checksum of TFRecord files, of many byte rows at once.

The polynomial: Castagnoli, Braeuer and Herrmann, "Optimization of cyclic
redundancy-check codes with 24 and 32 parity bits", IEEE Trans. Commun. 1993.
The mask: TensorFlow's core/lib/hash/crc32c.h.
"""

import functools

import numpy as np

_REVERSED_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = np.uint32(0xA282EAD8)
# Bytes that are looked up together: the tables of a block fit the L2 cache.
_BLOCK = 512
# The register's size in bytes; shorter rows are not supported.
MIN_BYTES = 4


def masked_crc32c(rows):
    """The masked CRC-32C of each row.

    A CRC is linear: each byte contributes by its value and place alone, and
    what comes of the bytes before a block acts as if added to the block's
    first four bytes. So a block takes one table look-up for each byte and a
    sum modulo 2, over all rows at once.

    Args:
      rows: uint8 array [N, L], L >= 4.

    Returns:
      uint32 array [N].
    """
    num_rows, length = rows.shape
    # Zeros in front leave the register as it is.
    lead = -length % _BLOCK
    padded = np.zeros((num_rows, lead + length), np.uint8)
    padded[:, lead:] = rows
    # The register starts as all ones.
    padded[:, lead : lead + MIN_BYTES] ^= 0xFF
    tables, offsets = _block_tables()
    register = np.zeros((num_rows, MIN_BYTES), np.uint8)
    for start in range(0, lead + length, _BLOCK):
        block = padded[:, start : start + _BLOCK]
        block[:, :MIN_BYTES] ^= register
        sums = np.bitwise_xor.reduce(tables.take(block + offsets), axis=1)
        register = sums.astype("<u4").view(np.uint8).reshape(-1, MIN_BYTES)
    crc = ~sums
    return ((crc >> 15) | (crc << 17)) + _MASK_DELTA


@functools.cache
def _block_tables():
    """What each byte value at each place of a block adds to the register.

    Returns:
      uint32 array [_BLOCK * 256] and the index at which each place begins,
      int64 [_BLOCK].
    """
    last = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        shifted = last >> 1
        last = np.where(last & 1, shifted ^ _REVERSED_POLYNOMIAL, shifted)
    tables = np.empty((_BLOCK, 256), np.uint32)
    tables[-1] = last
    for place in range(_BLOCK - 2, -1, -1):
        following = tables[place + 1]
        tables[place] = (following >> 8) ^ last[following & 0xFF]
    return tables.reshape(-1), np.arange(_BLOCK) * 256
