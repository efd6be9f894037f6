"""The list of methods says what a user chooses by, in the width of a terminal."""

import pytest
from commands import command

from cl_bench.cli import method_list
from cl_bench.plugins import registry

METHODS = registry.plugins("methods")


@pytest.mark.parametrize("details", [False, True])
def test_it_fits_a_terminal_of_80_columns(details):
    assert max(map(len, method_list.lines(details))) <= 80


def test_a_line_has_names_family_venue_passes_and_what_is_kept():
    lines = [line.split("  ") for line in method_list.lines(False)]
    cells = {line[0]: [cell.strip() for cell in line if cell.strip()] for line in lines}
    assert cells["vpt-nsp2, nsp2"] == ["vpt-nsp2, nsp2", "prompts", "NeurIPS 2024", "1", "–"]
    assert cells["l2p"] == ["l2p", "prompts", "CVPR 2022", "2", "–"]
    assert cells["simplecil"][:4] == ["simplecil", "prototypes", "IJCV 2024", "1"]
    assert cells["simplecil"][4].startswith("the mean of features")
    assert cells["vpt-pgp, pgp"][2] == "ICLR 2024 ¶"  # no public code
    assert {", ".join((plugin.name, *plugin.aliases)) for plugin in METHODS.values()} <= set(cells)


def test_methods_of_a_family_stand_together_by_year():
    named = [line.split("  ")[0].split(",")[0] for line in method_list.lines(False)]
    found = [METHODS[name] for name in named if name in METHODS]
    places = [(plugin.family.lower(), plugin.venue[-4:]) for plugin in found]
    assert places == sorted(places)


def test_details_have_the_summary_and_the_groups():
    text = " ".join(" ".join(method_list.lines(True)).split())
    assert all(plugin.summary in text for plugin in METHODS.values())
    assert (
        "l2p prompts chosen from a pool by keys (L2P) family: prompts; venue: CVPR 2022; passes: 2; "
        "keeps of old classes: –; groups: paper"
    ) in text


def test_below_stand_the_groups_with_their_methods():
    text = " ".join(" ".join(method_list.lines(False)).split())
    assert "group paper: dualprompt, l2p, " in text and "group all: all that fit the backbone" in text


def test_details_are_of_methods_alone(capsys):
    assert command("ls", "datasets", "--details") == 2
    assert "--details is for methods; leave it out of `cl-bench ls datasets`" in capsys.readouterr().err
