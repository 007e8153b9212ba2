import sys

import pytest

from testing import commands

# Zeros of 64 MB are written twice: 16,384 pages each time if they are new.
PROGRAM = """
import resource
import keras
from devices.allocation import keep_freed_memory

keras.backend.backend = lambda: {backend!r}
keep_freed_memory()

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numbers = bytearray(2**26)
    numbers[::4096] = b"1" * 2**14
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

pages()
print(pages())
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="counts pages as Linux does"
)
@pytest.mark.parametrize(
    ("backend", "kept"), [("jax", True), ("torch", True), ("tensorflow", False)]
)
def test_freed_memory_is_used_again(backend, kept):
    code, pages, errors = commands.run("-c", PROGRAM.format(backend=backend))
    assert code == 0, errors
    assert (int(pages.split()[-1]) < 1000) == kept
