"""Which kinds of kernels the time of a profiled pass goes into."""

from collections import defaultdict

import torch
from bench_overhead import computes

KINDS = {  # the first whose word is in a kernel's name; on a CPU operators are the kernels
    "fused by torch.compile": ("triton",),
    "attention": ("flash", "fmha", "sdpa", "attention"),
    "matrix products": ("gemm", "nvjet", "cutlass", "xmma", "aten::mm", "aten::bmm", "addmm", "linear"),
    "copies": ("memcpy", "memset", "copy", "aten::cat"),
    "optimizer": ("adam", "multi_tensor", "foreach"),
    "norms and softmax": ("norm", "softmax"),
    "convolution": ("conv",),
    "reductions": ("reduce", "aten::sum", "aten::mean"),
    "elementwise": ("elementwise", "vectorized", "gelu", "aten::mul", "aten::add", "aten::div"),
}
LARGEST = 12


def shares(events, on_gpu: bool, seconds: float) -> dict:
    """Shares of the time in kernels by kind and of the largest; `busy` is that time over the pass's."""
    if on_gpu:
        kernels = {
            event.key: event.self_device_time_total
            for event in events
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
        }
    else:
        kernels = {event.key: event.self_cpu_time_total for event in events if computes(event.key)}
    total, kinds = sum(kernels.values()), defaultdict(float)
    for name, spent in kernels.items():
        kinds[kind(name)] += spent / total
    largest = sorted(kernels, key=kernels.__getitem__, reverse=True)[:LARGEST]
    return {
        "busy": total / 1e6 / seconds,
        "kinds": dict(sorted(kinds.items(), key=lambda pair: -pair[1])),
        "largest": {name: kernels[name] / total for name in largest},
    }


def kind(name: str) -> str:
    """What a kernel does, by its name."""
    low = name.lower()
    return next((kind for kind, words in KINDS.items() if any(word in low for word in words)), "other")
