"""Groups stand for the methods that name them, each once; what does not fit is left out and told."""

from pathlib import Path

import pytest
from commands import command

from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry, search_path
from cl_bench.plugins.groups import expanded, groups
from cl_bench.report import spec as layout

ROOT = Path(__file__).resolve().parents[2]
CLIP = {"clip-joint", "clip-nsp2", "clip-seq", "clip-zeroshot"}


def plan(base, **changes):
    return make_plan(Request(**{**base, **changes}))


def labels(base, **changes) -> list[str]:
    return [spec.label for spec in plan(base, **changes).specs]


def absent(line: str) -> set[str]:
    """The methods that a sentence is about."""
    return {*line.partition(" on ")[0].split(", ")}


def members(group: str) -> list[str]:
    return [plugin.name for plugin in groups()[group]]


@pytest.fixture
def write(tmp_path):
    """Writes a method that carries a group of its own; afterwards nothing of it is known."""

    def written(text: str, name: str = "mine_first") -> Path:
        folder = tmp_path / "plugins" / "methods"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(f'GROUPS = ("mine",)\n{text}', encoding="utf-8")
        search_path.use([tmp_path / "plugins"])
        return folder

    yield written
    search_path.use()


def test_paper_is_what_table_2_of_the_nsp2_paper_selects_and_all_is_every_method():
    table = layout.read(ROOT / "reports" / "nsp2-paper.toml").tables[1]
    selected = [layout.selector(row.select)[0] for row in table.rows if row.select]
    assert table.name == "table2" and sorted(members("paper")) == sorted(selected)
    assert sorted(members("all")) == sorted(registry.plugins("methods"))


def test_methods_of_a_group_stand_in_its_place_by_their_venues_year_each_once():
    before, after = expanded("simplecil,paper,nsp2[eta=0.9],l2p").methods.split(",nsp2[eta=0.9]")
    own = before.split(",")
    assert own[0] == "simplecil" and after == ",l2p"
    assert own[1:] == [name for name in members("paper") if name != "l2p"]
    assert own.index("dualprompt") < own.index("coda-prompt") < own.index("vpt-nsp2")  # 2022, 2023, 2024


def test_a_group_beside_names_and_another_group_asks_for_nothing_twice(base):
    made = plan(base, methods="paper,seq,all,vpt-nsp2")
    told = [name for line in made.left_out for name in absent(line)]
    assert set(told) >= CLIP
    assert sorted([*told, *(spec.label for spec in made.specs)]) == sorted(members("all"))
    assert not any("twice" in warning for warning in made.warnings)


def test_what_does_not_fit_the_backbone_is_left_out_in_one_sentence_and_an_error_where_it_is_named(base):
    made = plan(base, methods="all")
    [told] = [line for line in made.left_out if "no text tower; CLIP methods need one" in line]
    assert absent(told) >= CLIP and " on folder/2: backbone 'test_vit' has no text tower; " in told
    for methods in ("clip-nsp2", "all,clip-nsp2", "clip-nsp2[eta=0.9],all"):
        with pytest.raises(InputError, match="backbone 'test_vit' has no text tower"):
            plan(base, methods=methods)


def test_what_does_not_fit_the_splits_is_left_out_on_that_benchmark_alone(base):
    made = plan(base, methods="all", splits="2,4")
    tasks = {
        name: {spec.num_tasks for spec in made.specs if spec.label == name} for name in ("l2p", "simplecil")
    }
    assert tasks == {"l2p": {2}, "simplecil": {2, 4}}
    [told] = [line for line in made.left_out if line.startswith("l2p ")]
    assert told.startswith("l2p on folder/4: l2p compares the classes of the current task only")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "no_such_vit"}, "unknown backbone 'no_such_vit'"),
        ({"weights": "none.safetensors"}, "no weights file 'none.safetensors'"),
        ({"set": {"learning_rate": -1.0}}, "learning_rate=-1.0 is not usable"),
    ],
)
def test_what_is_wrong_with_the_request_is_an_error_for_a_group_too(base, changes, message):
    with pytest.raises(InputError, match=message):
        plan(base, methods="paper", **changes)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("papre", "unknown method 'papre'; did you mean 'paper'"),
        ("simplecli,paper", "unknown method 'simplecli'; did you mean 'simplecil'"),
        ("paper[eta=0.9]", "'paper\\[eta=0.9\\]': a group of methods takes no options; give them with --set"),
    ],
)
def test_a_word_that_is_neither_method_nor_group_names_the_nearest_of_both(base, methods, message):
    with pytest.raises(InputError, match=message):
        plan(base, methods=methods)


def test_a_grid_goes_to_the_methods_of_a_group_that_have_the_option(base):
    found = labels(base, methods="paper", grid={"eta": [0.5, 0.9]})
    assert [label for label in found if "eta" in label] == ["vpt-nsp2[eta=0.5]", "vpt-nsp2[eta=0.9]"]
    assert "l2p" in found


def test_a_users_method_carries_a_group_and_what_is_broken_in_it_is_told(base, write):
    write("from cl_bench.methods.simplecil import METHOD\n")
    write("import no_such_thing\nMETHOD = 1\n", "mine_broken")
    made = plan(base, methods="mine")
    assert [spec.label for spec in made.specs] == ["mine-first"]
    [told] = made.left_out
    assert told.startswith("mine-broken: ") and "No module named 'no_such_thing'" in told
    assert {"mine-first"} <= {spec.label for spec in plan(base, methods="all").specs}


def test_a_group_of_which_nothing_fits_is_an_error_that_says_why(base, write):
    folder = write("from cl_bench.methods.clip_zeroshot import METHOD\n")
    with pytest.raises(
        InputError, match="no method of the groups asked for can be run: mine-first on folder/2"
    ):
        plan(base, methods="mine")
    write("import no_such_thing\nMETHOD = 1\n", "mine_broken")
    (folder / "mine_first.py").unlink()
    with pytest.raises(InputError, match="mine has no method that can be used: mine-broken: .*no_such_thing"):
        plan(base, methods="mine")


@pytest.mark.slow
def test_every_command_says_what_it_leaves_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (("plan",), ("check",), ("status",), ("run", "--dry-run")):
        assert command(*words, "--methods", "simplecil,all", "--set", "precision=fp32") == 0
        lines = capsys.readouterr().err.splitlines()
        told = [line.removeprefix("left out: ") for line in lines if line.startswith("left out: ")]
        assert [line for line in told if absent(line) >= CLIP and " on glyphs/10: " in line]
