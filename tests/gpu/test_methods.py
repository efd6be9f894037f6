"""Every method learns on a GPU what it learns on a processor, compiled or not, and waits for no step."""

import pytest
import torch
import toys
from on_device import CLOSE, GPU, ON_GPU, assert_close, devices, lesson, slow_devices
from waiting import Watching

from cl_bench.nn import kernel
from cl_bench.plugins import registry

METHODS = sorted(registry.plugins("methods"))
everywhere = pytest.mark.parametrize(
    ("name", "device"),
    [pytest.param(name, GPU, marks=pytest.mark.gpu) for name in METHODS]
    + [pytest.param(name, "cpu", marks=pytest.mark.slow) for name in ("vpt-nsp2", "l2p", "ranpac")],
)


@everywhere
@pytest.mark.parametrize("precision", CLOSE)
def test_a_method_learns_what_it_learns_on_a_processor(name, device, precision):
    without_noise = {"dropout": 0.0}  # each device has random numbers of its own
    expected = lesson(name, "cpu", precision, **without_noise)
    assert_close(lesson(name, device, precision, **without_noise), expected, precision)


@everywhere
def test_no_step_of_a_pass_is_waited_for(name, device):
    joint = toys.method_class(name).joint
    tasks = [[2, 0], [1, 3, 4]]
    stream = toys.stream_of(toys.sides(tasks), tasks, joint, "autoaugment-cifar10", device)
    method = toys.method(name, stream.num_tasks, toys.backbone_for(name).to(device), passes=1)
    for index in range(stream.num_tasks):
        method.learn(stream.task(index), Watching(3, torch.device(device)))


@slow_devices
@pytest.mark.parametrize("precision", CLOSE)
def test_compiled_it_learns_what_it_learns_plainly(device, precision):
    said: list[str] = []
    plain = lesson("vpt-nsp2", device, precision)
    settings = {"backend": "eager"} if device == "cpu" else {}  # generated code takes a C++ compiler there
    kernel.compile_all(said.append, {8, 256}, **settings)
    try:
        assert_close(lesson("vpt-nsp2", device, precision), plain, precision)
    finally:
        kernel.plain_all()
    assert said == []  # such as that it went on without


@devices
def test_sums_of_matrix_products_are_not_in_tf32(device):
    matrix = torch.rand(256, 256, generator=torch.Generator().manual_seed(0))
    exact = matrix.double() @ matrix.double()
    found = (matrix.to(device) @ matrix.to(device)).cpu().double()
    assert float(((found - exact) / exact).abs().max()) < 1e-5  # TF32 has 10 bits: about 1e-4


@pytest.mark.parametrize("device", [ON_GPU])
def test_a_gpu_multiplies_in_bf16(device):
    one = torch.ones(64, 64, device=device, dtype=torch.bfloat16)
    assert float((one @ one).float().min()) == 64
