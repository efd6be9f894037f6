"""Accuracy matrices as people have them are read as they are meant, or refused with reason and line."""

import io

import numpy as np
import pytest
from commands import command
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import matrix_spec, read_matrix

from cl_bench.errors import InputError
from cl_bench.records import imported, matrix_file

NAN = "nan"
TRIANGLE = [[80.5], [60.25, 70.0], [50.0, 60.5, 70.25]]
SPEC = matrix_spec()


def by_pandas(above="", sep=",", index=True, heads=("0", "1", "2"), decimal=".", sign=""):
    """What `DataFrame.to_csv` writes of the triangle."""
    lines = [sep.join(([""] if index else []) + list(heads))] if heads else []
    for number, row in enumerate(TRIANGLE):
        cells = [f"{value}{sign}".replace(".", decimal) for value in row] + [above] * (2 - number)
        lines.append(sep.join(([str(number)] if index else []) + cells))
    return "\n".join(lines) + "\n"


def by_numpy(**options):
    full, out = np.zeros((3, 3)), io.StringIO()
    for number, row in enumerate(TRIANGLE):
        full[number, : number + 1] = row
    np.savetxt(out, full, **options)
    return out.getvalue()


READ = {
    "an index and counted columns": by_pandas(),
    "NaN above the diagonal": by_pandas(NAN),
    "an index without a heading": by_pandas(NAN, heads=None),
    "counted columns without an index": by_pandas(index=False),
    "names of columns": by_pandas(heads=("t1", "t2", "t3")),
    "an index counted from 1": by_pandas()
    .replace("\n2,", "\n3,")
    .replace("\n1,", "\n2,")
    .replace("\n0,", "\n1,"),
    "an index of words": by_pandas()
    .replace("\n0,", "\nafter 1,")
    .replace("\n1,", "\nafter 2,")
    .replace("\n2,", "\nafter 3,"),
    "a heading shorter by the index": by_pandas().replace(",0,1,2", "a,b,c"),
    "a named index": by_pandas().replace(",0,1,2", "task,0,1,2"),
    "semicolons": by_pandas(sep=";"),
    "semicolons and decimal commas": by_pandas(sep=";", decimal=","),
    "quoted decimal commas": '"80,5"\n"60,25","70,0"\n"50,0","60,5","70,25"\n',
    "tabs and decimal commas": by_pandas(sep="\t", decimal=","),
    "tabs and NA": by_pandas("NA", sep="\t", index=False, heads=None),
    "percent signs": by_pandas(sign="%"),
    "percent signs after a space": by_pandas(sign=" %", sep=";", decimal=","),
    "blank lines": by_pandas().replace("\n", "\n\n \n"),
    "lines of separators": by_pandas() + ",,,\n",
    "Windows lines": by_pandas().replace("\n", "\r\n"),
    "old Macintosh lines": by_pandas().replace("\n", "\r"),
    "a byte-order mark": "\ufeff" + by_pandas(),
    "a byte-order mark before a number": "\ufeff80.5\n60.25,70\n50,60.5,70.25\n",
    "ragged lines": "80.5\n60.25, 70\n50, 60.5, 70.25\n",
    "ragged lines with an index": "0,80.5\n1,60.25,70\n2,50,60.5,70.25\n",
    "numpy's savetxt": by_numpy(),
    "numpy's savetxt with a heading": by_numpy(header="after each task", fmt="%.2f"),
    "numpy's savetxt with commas": by_numpy(delimiter=",", fmt="%.3e"),
    "spaced words in a heading": "task 1 task 2 task 3\n" + by_numpy(fmt="%.2f"),
    "dashes above the diagonal": by_pandas("–"),
}


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def shares(record):
    return [
        [round(100 * count / size, 4) for count, size in zip(row, record.test_sizes, strict=False)]
        for row in record.correct
    ]


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_a_matrix_is_read_as_its_program_meant_it(tmp_path, text):
    record = read_matrix(written(tmp_path / "m.csv", text), SPEC, None, percent=True)
    assert shares(record) == TRIANGLE


def test_a_spreadsheets_utf_16_is_read(tmp_path):
    assert (
        shares(
            read_matrix(
                written(tmp_path / "m.txt", by_pandas(sep="\t", decimal=","), "utf-16"),
                SPEC,
                None,
                percent=True,
            )
        )
        == TRIANGLE
    )


def test_fractions_are_read_without_percent_and_refused_with_it(tmp_path):
    text = ",0,1,2\n0,0.805,,\n1,0.6025,0.7,\n2,0.5,0.605,0.7025\n"
    file = written(tmp_path / "m.csv", text)
    assert shares(read_matrix(file, SPEC, None, percent=False)) == TRIANGLE
    with pytest.raises(
        InputError, match="holds no value above 1; leave out --percent"
    ):  # the index is no accuracy
        read_matrix(file, SPEC, None, percent=True)


def test_percent_signs_say_what_the_option_says(tmp_path):
    assert (
        shares(read_matrix(written(tmp_path / "m.csv", by_pandas(sign="%")), SPEC, None, percent=False))
        == TRIANGLE
    )
    low = "0.5%\n0.25%,0.5%\n0.25%,0.75%,1%\n"
    assert shares(read_matrix(written(tmp_path / "m.csv", low), SPEC, None, percent=True)) == [
        [0.5],
        [0.25, 0.5],
        [0.25, 0.75, 1.0],
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("80\n60,70\n", "has 2 lines of accuracies, expected 3"),
        (",0,1,2\n0,80,,\n1,60,70,\n", "has 2 lines of accuracies below a heading, expected 3"),
        ("a,b,c\n\n80,,\nnan,70,\n50,60,70\n", r"line 4: expected 2 accuracies \(tasks 1 to 2\), got 1"),
        (by_pandas(NAN).replace("60.25", NAN), "line 3: expected 2 accuracies .* got 1"),
        ("# by hand\n80\n60,seventy\n50,60,70\n", "line 3, task 2: 'seventy' is not a number"),
        ("80\n60,inf\n50,60,70\n", "line 2, task 2: 'inf' is not a number"),
        ("80\n60,1_0\n50,60,70\n", "line 2, task 2: '1_0' is not a number"),
        ("80\n60,70 ± 1\n50,60,70\n", "line 2, task 2: '70 ± 1' is not a number"),
        ("80%\n60,70%\n50%,60%,70%\n", "line 2, task 1: '60' has no percent sign, others have"),
        ("80,5;\n60.5;70,5\n50;60;70\n", "line 2, task 1: '60.5': decimal commas and decimal points"),
        (
            "80,60,50\n0,70,60\n0,0,70\n",
            "line 1: there are accuracies on tasks not yet learned; is the matrix transposed",
        ),
        (
            "80,5\n60,5,70,5\n50,5,60,5,70,5\n",
            "line 1: there are accuracies on tasks not yet learned; there are 6 columns for 3 tasks",
        ),
        (
            "task,a,b,c,mean\n1,80,,,80\n2,60,70,,65\n3,50,60,70,60\n",
            "line 2: .*there are 4 columns for 3 tasks: leave out those that are no task",
        ),
        ("80\n60,-1\n50,60,70\n", "line 2, task 2: -1 is not between 0 and 100"),
        ("80\n60,1e99\n50,60,70\n", "line 2, task 2: 1e.99 is not between 0 and 100"),
        ("80\n60,1e999\n50,60,70\n", "line 2, task 2: '1e999' is not a number"),
        ("\n\n", "holds no numbers"),
        ("a,b,c\n", "holds no numbers"),
        ("PK\x03\x04\0\0", "is not a text file; export the matrix as CSV"),
        ('{"matrix": [[80]]}', "holds no numbers|has 1 lines"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_the_true_reason_and_its_line(tmp_path, text, said):
    with pytest.raises(InputError, match=said) as caught:
        read_matrix(written(tmp_path / "m.csv", text), SPEC, None, percent=True)
    assert "\n" not in str(caught.value)


def test_a_file_in_another_encoding_says_in_which_line(tmp_path):
    with pytest.raises(InputError, match="line 2: this is not text in UTF-8"):
        matrix_file.read(written(tmp_path / "m.csv", "a\ntâche\n", "latin-1"), 3)


def test_the_command_says_how_it_read_the_file_and_what_deserves_a_look(tmp_path, capsys):
    file = written(tmp_path / "m.csv", by_pandas(sep=";", decimal=",", sign="%").replace("70,0%", "0,7%"))
    usual = ["--name", "T", "--source", "s", "--benchmark", "glyphs/3", "--results", tmp_path]
    assert command("import", file, *usual) == 0
    said = capsys.readouterr().err
    for remark in (
        "first column read as an index (0 to 2)",
        "line 1 read as a heading",
        "semicolons between the cells",
        "decimal commas",
        "percentages",
    ):
        assert remark in said
    assert "warning: " in said and "at most 1 % right after learning: task 2 (0.70%)" in said
    assert (
        command(
            "import", written(tmp_path / "n.csv", "80\n60,70\n50,60,70\n"), *usual, "--seed", "2", "--percent"
        )
        == 0
    )
    assert capsys.readouterr().err == ""  # nothing to say of the plain form


cell = st.one_of(st.text("0123456789.,;%-+eE \t\"'\\nanxé²", max_size=6), st.floats().map(str))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(cell, max_size=5), max_size=5), st.sampled_from([",", ";", "\t", " "]), st.booleans()
)
def test_any_file_is_read_or_refused_in_one_line(tmp_path_factory, rows, sep, percent):
    file = written(tmp_path_factory.getbasetemp() / "any.csv", "\n".join(sep.join(cells) for cells in rows))
    try:
        record = read_matrix(file, SPEC, None, percent)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [len(row) for row in record.correct] == [1, 2, 3] and imported.doubts(record) is not None
