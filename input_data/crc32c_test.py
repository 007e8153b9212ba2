import numpy as np
import pytest

from input_data.crc32c import masked_crc32c


def bitwise_masked_crc(data):
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 * (register & 1))
    crc = register ^ 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def unmask(masked):
    rotated = (int(masked) - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"123456789", 0xE3069283),
        # RFC 3720, appendix B.4.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_values(data, crc):
    row = np.frombuffer(data, np.uint8)[np.newaxis]
    assert unmask(masked_crc32c(row)[0]) == crc


@pytest.mark.parametrize("length", [4, 5, 511, 512, 513, 1024, 1300])
def test_equals_the_bitwise_definition(length):
    rows = np.random.default_rng(length).integers(
        0, 256, (3, length), dtype=np.uint8
    )
    before = rows.copy()
    expected = [bitwise_masked_crc(row.tolist()) for row in rows]
    assert masked_crc32c(rows).tolist() == expected
    np.testing.assert_array_equal(rows, before)
