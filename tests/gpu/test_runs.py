"""Whole runs on a GPU: continued elsewhere, two on one GPU, several GPUs for one, and short of memory."""

import pytest
import runs
import torch
import toys
from commands import finish, records, start
from on_device import GPU, ON_GPU, slow_devices

SEVERAL = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two CUDA devices")
FRACTION = """
import torch
from cl_bench.run import runner
original = runner.build_stream
def with_little_memory(spec, source, device, stores):
    found = original(spec, source, device, stores)
    torch.cuda.set_per_process_memory_fraction({bytes} / torch.cuda.mem_get_info(device)[1], device)
    return found
runner.build_stream = with_little_memory
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    inputs = toys.command_options(toys.write_inputs(tmp_path_factory.mktemp("gpu"), classes=8))
    settings = toys.set_options("batch=8", "passes=2", "epoch_mode=plain", "temperature=4", "precision=fp32")
    return [*inputs, "--splits", "4", "--threads", "1", "--no-compile", *settings]


@slow_devices
def test_a_run_goes_on_on_another_device_and_says_where_it_was(device, toy_request, tmp_path):
    spec = runs.spec_of(toy_request)
    for place, task in ((device, 1), ("cpu", 2)):
        runs.run_until(spec, tmp_path, task, device=place, compiled=False)
    record = runs.execute(spec, tmp_path, device=device, compiled=False)
    assert record.status == "done" and len(record.tasks) == 4
    assert [where["device"] for where in record.environments] == [device, "cpu", device]
    whole = runs.execute(spec, tmp_path / "whole", compiled=False)
    for one, other in zip(record.tasks, whole.tasks, strict=True):
        assert one.pass_losses == pytest.approx(other.pass_losses, rel=0 if device == "cpu" else 0.2)
    if device == "cpu":
        assert record.outcome() == whole.outcome()


@slow_devices
def test_two_processes_share_a_device(device, base, tmp_path):
    places = ["--jobs", "2"] if device == "cpu" else ["--per-gpu", "2"]
    words = ("run", "--methods", "seq,nsp2,pgp", *base, "--device", device, *places, "--no-share")
    code, _, err = finish(start(tmp_path, *words))
    assert code == 0, err
    assert [record.status for record in records(tmp_path)] == ["done"] * 3
    assert {record.environments[0]["device"] for record in records(tmp_path)} == {device}


@pytest.mark.parametrize(
    "places",
    [
        pytest.param((GPU, "cuda:1"), marks=[pytest.mark.gpu, SEVERAL], id="nccl"),
        pytest.param(("cpu", "cpu"), marks=pytest.mark.slow, id="gloo"),
    ],
)
def test_several_devices_learn_what_one_learns(places, toy_request, tmp_path):
    spec = runs.spec_of(toy_request, splits="2")
    settings = {"device": places[0], "compiled": False}
    alone = runs.execute(spec, tmp_path / "alone", **settings)
    both = runs.execute(spec, tmp_path / "both", helpers=places[1:], **settings)
    assert both.environments[0]["devices"] == 2
    for one, other in zip(alone.tasks, both.tasks, strict=True):
        assert other.pass_losses == pytest.approx(one.pass_losses, rel=1e-2)
        assert other.images_seen == one.images_seen


@pytest.mark.parametrize("device", [ON_GPU])
def test_short_of_memory_a_run_is_tried_again_with_smaller_steps(device, tmp_path):
    """ViT-S at 224 pixels: a batch of 128 needs gigabytes, a quarter of it fits beside network and images."""
    import timm
    from safetensors.torch import save_file

    model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=0)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    folder = toys.write_folder(tmp_path / "data", classes=4, per_class=80)
    words = [
        *("run", "--methods", "seq", "--dataset", f"folder:{folder}", "--splits", "2", "--device", device),
        *("--backbone", "vit_small_patch16_224.augreg_in21k", "--weights", tmp_path / "w.safetensors"),
        *("--no-compile", "--threads", "1"),
        *toys.set_options("batch=128", "passes=1", "precision=fp32", "epoch_mode=plain"),
    ]
    code, _, err = finish(start(tmp_path, *words))  # what a whole batch needs
    assert code == 0, err
    [record] = records(tmp_path)
    needed = max(task.peak_memory_bytes for task in record.tasks)
    few = tmp_path / "few"
    few.mkdir()
    code, _, err = finish(start(few, *words, patch=FRACTION.format(bytes=needed * 0.6)))
    assert code == 0 and "out of memory, tried again with 32 images at a time" in err, err
    [again] = records(few)
    assert [task.micro_batch for task in again.tasks] == [32, 32]
    assert max(task.peak_memory_bytes for task in again.tasks) <= 0.6 * needed
    for one, other in zip(record.tasks, again.tasks, strict=True):
        assert other.pass_losses == pytest.approx(one.pass_losses, rel=1e-2)
