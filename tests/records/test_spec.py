"""What a specification is the same as: any other of its values, whichever object that is."""

from made import record

COUNTS = [[80], [60, 70], [50, 60, 70]]


def test_equal_specifications_are_one_key_and_other_options_are_another():
    first, same, other = (record("vpt-nsp2", COUNTS, options={"eta": eta}).spec for eta in (0.9, 0.9, 1.0))
    assert first is not same and {first: "known"}.get(same) == "known"
    assert {first: "known"}.get(other) is None and len({first, same, other}) == 2
