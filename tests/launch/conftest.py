"""What commands of these tests have in common."""

import pytest
import toys


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    inputs = toys.command_options(toys.write_inputs(tmp_path_factory.mktemp("orchestrator"), classes=8))
    settings = toys.set_options("batch=8", "epoch_mode=plain", "temperature=4")
    return [*inputs, "--splits", "4", "--device", "cpu", "--threads", "1", *settings]
