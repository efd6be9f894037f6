"""Event files of TensorBoard, read back."""

import json

import numpy as np
import pytest
from runs import execute, run_until, spec_of

import cl_bench
from cl_bench.records.metrics import accuracy_curve
from cl_bench.records.spec import name
from cl_bench.records.store import Store

pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")


def events(root, spec):
    """What TensorBoard shows of the run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    named = f"{name(spec).replace('/', '-')} {spec.run_id()}"
    folder = root / "trackers" / "tensorboard" / spec.family_id() / named
    found = EventAccumulator(str(folder))
    assert list(folder.iterdir())
    found.Reload()
    return found


def curve(found, tag):
    return [(event.step, event.value) for event in found.Scalars(tag)]


def numbered(values):
    return [(count, float(np.float32(value))) for count, value in enumerate(values, 1)]


def require_whole(found, record):
    losses = [loss for task in record.tasks for loss in task.pass_losses]
    assert curve(found, "loss") == numbered(losses)
    assert curve(found, "accuracy/mean") == numbered(accuracy_curve(record.correct, record.test_sizes))
    for j in range(4):
        rates = [(t + 1, float(np.float32(record.correct[t][j] / 8))) for t in range(j, 4)]
        assert curve(found, f"accuracy/task_{j + 1:02d}") == rates
    [image] = found.Images("accuracy_matrix")
    assert image.step == 4 and image.encoded_image_string.startswith(b"\x89PNG")


def test_curves_matrix_and_configuration_are_those_of_the_run(toy_request, tmp_path):
    spec = spec_of(toy_request)
    record = execute(spec, tmp_path, track=("tensorboard",))
    found = events(tmp_path, spec)
    require_whole(found, record)
    assert len(found.Scalars("images_per_second")) == 16
    rates = [event.value for event in found.Scalars("learning_rate")]
    assert rates == pytest.approx([spec.options["learning_rate"] * part for part in (1, 1, 0.1, 0.01)] * 4)
    [text] = found.Tensors("configuration/text_summary")
    told = json.loads(text.tensor_proto.string_val[0])
    assert told["options"] == spec.options and told["environment"] == record.environments[0]
    [text] = found.Tensors("run_id/text_summary")
    assert text.tensor_proto.string_val[0].decode() == spec.run_id()


def test_a_run_that_goes_on_has_one_curve(toy_request, tmp_path):
    spec = spec_of(toy_request)
    run_until(spec, tmp_path, 2, 3, track=("tensorboard",))
    record = execute(spec, tmp_path, track=("tensorboard",))
    require_whole(events(tmp_path, spec), record)


@pytest.mark.slow
def test_it_is_asked_for_from_python(toy_request, tmp_path):
    asked = {key: toy_request[key] for key in ("backbone", "weights", "image_size", "set")}
    terms = {"results": tmp_path, "devices": "cpu", "jobs": 1, "threads": 1, "quiet": True}
    benchmark = f"{toy_request['dataset']}/4"
    cl_bench.run("seq", benchmark, track=["tensorboard"], **terms, **asked)
    [record] = Store(tmp_path).records()
    require_whole(events(tmp_path, record.spec), record)


def test_a_run_begun_anew_hides_what_was_there(toy_request, tmp_path):
    spec = spec_of(toy_request, "seq")
    for _ in range(2):
        record = execute(spec, tmp_path, track=("tensorboard",))
        for path in Store(tmp_path).folder(spec).iterdir():
            path.unlink()
    require_whole(events(tmp_path, spec), record)
