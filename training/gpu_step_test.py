"""The training step, compiled by JAX for an H100 without having one.

Needs the plugin of `pip install 'jax[cuda12]'`, of the same version, and
JAX_PLATFORMS=cpu without a GPU.
"""

import importlib.util
import math
import re

import keras
import numpy as np
import pytest
from models.capsule import CapsuleModel
from models.registry import build_model

from input_data import keys
from layers import convolution, votes
from models.optimizer import compile_model
from training.steps_per_execution import scan_steps

H100 = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 core_count: 132
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 fpus_per_core: 128 l2_cache_size: 52428800
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 clock_rate_ghz: 1.98
  device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 }
"""
BATCH, STEPS = 128, 10
FIRST = 2 * BATCH * 20**2 * 9**2 * 256  # FLOPs of the first convolution
PRIMARY = 2 * BATCH * 6**2 * 9**2 * 256 * 256


def h100():
    import jax
    from jax._src import xla_bridge

    jax.devices()
    with pytest.MonkeyPatch.context() as patch:
        # It looks for an attached GPU.
        patch.setattr(xla_bridge, "canonicalize_platform", lambda name: name)
        topology = xla_bridge.make_pjrt_topology(
            "cuda", target_config=H100, topology="1x1x1"
        )
    return topology._make_compile_only_devices()[0]


def compiled_steps():
    """XLA's program of ten steps of the default network, as text."""
    import jax

    sharding = jax.sharding.SingleDeviceSharding(h100())

    def struct(v):
        return jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=sharding)

    shape = keys.ImageShape(28, 28, 1, 10)
    model = build_model("capsule", shape, 1, CapsuleModel.HParams())
    compile_model(model, 1000)
    images = np.zeros((BATCH, STEPS, 28, 28, 1), "float32")
    labels = np.zeros((BATCH, STEPS), "int32")
    x = {keys.IMAGES: images, keys.RECONS_LABEL: labels, keys.STEP: labels}
    y = {keys.LABELS: images[..., :10, 0, 0], keys.RECONS: images}
    state = model._get_jax_state(*[True] * 4)
    arguments = jax.tree.map(struct, (state, (x, y)))
    steps = jax.jit(scan_steps(model.train_step), donate_argnums=0)
    options = {"xla_gpu_autotune_level": 0}
    return steps.lower(*arguments).compile(options).as_text()


def convolution_flops(text):
    """FLOPs of each convolution, by the shapes of its tensors."""
    shapes = {
        name: [int(n) for n in sizes.split(",") if n]
        for name, sizes in re.findall(r"%(\S+) = \(?\w+\[([\d,]*)\]", text)
    }
    flops = []
    for result, operands, axes, kind in re.findall(
        r"%(\S+) = .*custom-call\((.*?)\), window=.*?, dim_labels=\S+?_(\S+?), "
        r'.*custom_call_target="__cudnn\$conv\w*'
        r'(Forward|BackwardInput|BackwardFilter)"',
        text,
    ):
        first, second, *_ = re.findall(r"%([^\s,]+)", operands)
        kernel, outputs = {
            "Forward": (second, result),
            "BackwardInput": (second, first),
            "BackwardFilter": (result, second),
        }[kind]
        both, channels = shapes[kernel] + shapes[outputs], axes.index("o")
        flops.append(2 * math.prod(both) // shapes[kernel][channels])
    return sorted(flops)


@pytest.fixture
def on_gpu(monkeypatch):
    for module in (convolution, votes):
        monkeypatch.setattr(module, "is_on_cpu", lambda *_: False)
    keras.config.set_dtype_policy("mixed_bfloat16")


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "jax"
    or not importlib.util.find_spec("jax_plugins.xla_cuda12"),
    reason="needs JAX and its plugin for CUDA",
)
def test_convolutions_multiply_no_filled_zeros(on_gpu, monkeypatch):
    text = compiled_steps()
    by_phases = convolution_flops(text)
    # A kernel of 9x9 becomes one of 10x10.
    assert by_phases == [FIRST] * 2 + [PRIMARY * 100 / 81] * 3
    assert re.findall(r'known_trip_count":{"n":"(\d+)"', text) == [str(STEPS)]
    # Nothing goes to the host; S(5) is its memory.
    assert not re.findall(r"infeed|outfeed|send\(|recv\(|S\(5\)", text)
    monkeypatch.setattr(convolution, "_has_slow_gradients", lambda *_: False)
    directly = convolution_flops(compiled_steps())
    assert directly[:3] == [FIRST] * 2 + [PRIMARY]
    assert sum(directly[3:]) > 9 * 2 * PRIMARY
    print("GFLOP of the primary capsules' gradients, direct and by phases:")
    print(sum(directly[3:]) / 1e9, sum(by_phases[3:]) / 1e9)
