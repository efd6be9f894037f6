"""What commands of these tests have in common."""

import pytest
import toys


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("orchestrator")
    toys.write_folder(root / "data", classes=8)
    toys.write_weights(root / "w.safetensors")
    common = [
        "--dataset",
        f"folder:{root / 'data'}",
        "--backbone",
        "test_vit",
        "--weights",
        str(root / "w.safetensors"),
        "--image-size",
        "32",
    ]
    settings = [
        part for setting in ("batch=8", "epoch_mode=plain", "temperature=4") for part in ("--set", setting)
    ]
    return [*common, "--splits", "4", "--device", "cpu", "--threads", "1", *settings]
