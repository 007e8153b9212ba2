import subprocess
import sys

import pytest

# Zeros of 64 MB are written twice: 16,384 pages each time if they are new.
PROGRAM = """
import resource, sys
sys.path.insert(0, {root!r})
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
def test_freed_memory_is_used_again(pytestconfig, backend, kept):
    program = PROGRAM.format(root=str(pytestconfig.rootpath), backend=backend)
    pages = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert (int(pages.split()[-1]) < 1000) == kept
