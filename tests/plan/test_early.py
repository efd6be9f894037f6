"""What cannot be used is said before data are opened, and settings of some methods are told."""

import pytest
from runs import plan

from cl_bench.errors import InputError
from cl_bench.plan import resolve


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"methods": "seq", "set": {"passes": -3}}, "vpt-seq: passes=-3 is not usable"),
        ({"methods": "seq,nsp2[eta=7]"}, "vpt-nsp2: eta=7 is not usable"),
        ({"methods": "seq", "set": {"augment": "blur"}}, "augment='blur' is not usable"),
        ({"methods": "seq", "set": {"pases": 3}}, "did you mean 'passes'"),
    ],
)
def test_a_bad_value_is_refused_before_the_data_are_opened(toy_request, monkeypatch, asked, message):
    monkeypatch.setattr(resolve, "open_source", lambda *arguments: pytest.fail("it opened the data"))
    with pytest.raises(InputError, match=message):
        plan({**toy_request, "set": {}}, **asked)


def test_a_setting_that_only_some_methods_have_is_told(toy_request):
    made = plan({**toy_request, "set": {}}, methods="seq,pgp,nsp2", set={"nsp_norm": "none", "passes": 3})
    told = [line for line in made.remarks if line.startswith("--set")]
    assert told == ["--set nsp_norm is an option of vpt-nsp2, and none of vpt-seq, vpt-pgp"]


def test_a_folder_is_called_alike_everywhere(toy_request):
    [spec] = plan({**toy_request, "set": {}}, methods="seq").specs
    from cl_bench.records.spec import name

    assert f" {spec.benchmark_key()} " in name(spec) and spec.benchmark_key().startswith("folder:")
