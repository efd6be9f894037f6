"""Whatever a user types, a command succeeds or says in one line what is wrong, and never in a traceback."""

import pytest
from fuzz import ODD, SMALL, WORDS, drawn, ends_well, words, working_folder, write
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from cl_bench.cli import program
from cl_bench.plugins import registry


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with working_folder(tmp_path_factory.mktemp("fuzz")) as root:
        yield root


text = st.text(max_size=8).filter(
    lambda word: not word.startswith("/") and ".." not in word
)  # nothing is written elsewhere
value = st.one_of(st.sampled_from(WORDS), st.sampled_from(ODD), text, st.integers(-5, 10**20).map(str))
QUIET = words(
    "plan check status report ls info export merge compare clean import certify run-one"
)  # these train nothing
COMMANDS = {name: command for name, command in get_command(program()).commands.items() if name in QUIET}


@st.composite
def command_lines(draw) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    given_words, parameters = [name], COMMANDS[name].params
    for parameter in draw(st.lists(st.sampled_from(parameters), max_size=5)):
        option = (
            []
            if parameter.param_type_name == "argument"
            else [draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts]))]
        )
        flag = getattr(parameter, "is_flag", False)
        given_words += option + ([] if flag else [draw(value)])
    return given_words


@drawn(25)
@given(command=command_lines())
def test_command_lines(place, command):
    ends_well(*command)


METHODS = sorted(registry.plugins("methods"))
OPTIONS = sorted(
    {option for name in METHODS for option in registry.method_class(name).Config.model_fields}
    | {"augment", "crop_scale", "normalisation", "x"}
)
setting = st.one_of(
    st.sampled_from(ODD),
    st.integers(-3, 10**12).map(str),
    st.floats(allow_nan=False).map(str),
    st.sampled_from(["on", "off", "none", "half"]),
)


@drawn(12)
@given(
    name=st.sampled_from(METHODS),
    options=st.dictionaries(st.sampled_from(OPTIONS), setting, max_size=3),
    published=st.booleans(),
)
def test_settings_of_methods(place, name, options, published):
    chosen = [word for key, text in options.items() for word in ("--set", f"{key}={text}")]
    ends_well("plan", "--methods", name, *SMALL, *chosen, *(["--as-published"] if published else []))


@drawn(8)
@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from(
                ["class_0", "class_1", "class_2", "class_3", "0", "3", "²", "1_0", "99999999999999999999", ""]
            ),
            st.text(max_size=5),
        ),
        max_size=6,
    )
)
def test_order_files(place, lines):
    write(place / "order.txt", "\n".join(lines))
    ends_well("plan", "--methods", "seq", *SMALL, "--order", "order.txt")
