"""The precision of a run is the request's, or else the one that its machine is made for."""

import pytest

from cl_bench import environment
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request

AMX = "fpu amx_tile amx_bf16 sse"


@pytest.mark.parametrize(
    ("flags", "usable", "precision"),
    [(AMX, True, "bf16"), (AMX, False, "fp32"), ("fpu avx512_bf16", True, "fp32"), ("", True, "fp32")],
)
def test_a_processor_with_matrix_units_for_bf16_is_used_as_one(monkeypatch, flags, usable, precision):
    monkeypatch.setattr(environment, "cpuinfo", lambda field: {"flags": flags}[field])
    monkeypatch.setattr(environment, "has_bf16", lambda: usable)
    assert environment.usual_precision(["cpu"]) == precision


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [([(8, 0)], "bf16"), ([(9, 0), (8, 9)], "bf16"), ([(9, 0), (7, 5)], "fp32")],
)
def test_gpus_compute_in_bf16_where_all_of_them_can(monkeypatch, capabilities, precision):
    monkeypatch.setattr(
        "torch.cuda.get_device_capability", lambda device: capabilities[int(device.removeprefix("cuda:"))]
    )
    assert environment.usual_precision([f"cuda:{number}" for number in range(len(capabilities))]) == precision


def test_what_a_request_sets_wins_over_the_machines_precision(base):
    chosen, usual = (
        make_plan(Request(**base, set=settings), "bf16").specs[0].precision
        for settings in ({"precision": "fp32"}, {})
    )
    assert (chosen, usual) == ("fp32", "bf16")
