"""What plans of these tests are made of."""

import pytest
import toys


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A request on a small folder of images with a small ViT."""
    return {**toys.write_inputs(tmp_path_factory.mktemp("plan")), "splits": "2"}
