"""The committed table: what got slower is named, what did not is not, and a written table is read back."""

import json

import pytest

from benchmarks import table
from benchmarks.measure import Measurement, fastest_in_turns


def measured(key, ratio, limit=1.0):
    return Measurement(key, f"the one called {key}", ratio * 10, "the other", 10.0, limit)


def test_what_got_slower_by_a_fifth_is_named():
    slower, new = table.compared([measured("a", 0.16), measured("b", 0.5)], {"a": 0.12, "b": 0.5})
    assert slower == ["slower than the committed table: the one called a 0.12 -> 0.16 (1.33x)"]
    assert new == []


@pytest.mark.parametrize(("ratio", "is_named"), [(0.25, False), (0.5, False), (0.59, False), (0.6, True), (5.0, True)])
def test_a_fifth_is_where_noise_ends(ratio, is_named):
    assert bool(table.compared([measured("a", ratio)], {"a": 0.5}).slower) is is_named


def test_the_ratio_counts_not_the_seconds():
    on_a_slower_machine = Measurement("a", "a", 50.0, "the other", 100.0, 1.0)
    assert table.compared([on_a_slower_machine], {"a": 0.5}) == ([], [])


def test_a_key_that_the_table_does_not_have_is_new():
    slower, new = table.compared([measured("a", 0.5)], {"b": 0.1})
    assert slower == []
    assert new == ["not in the committed table: the one called a 0.5"]


def test_what_was_not_measured_is_ignored():
    assert table.compared([measured("a", 0.5)], {"a": 0.5, "not measured": 0.1}) == ([], [])


@pytest.mark.parametrize(
    ("first", "n_runs", "ratio"),
    [(measured("a", 0.55), 1, 0.55), (measured("a", 0.7), 2, 0.5), (measured("a", 0.55, limit=0.5), 2, 0.5)],
    ids=["as before", "slower than committed", "beyond its limit"],
)
def test_what_looks_slow_is_measured_once_more(first, n_runs, ratio):
    runs = [[first], [measured("a", 0.5)]]
    (found,) = table.settled(lambda: runs.pop(0), {"a": 0.5})
    assert len(runs) == 2 - n_runs
    assert found.ratio == ratio


def test_of_two_measurements_the_fastest_of_either_side_counts():
    found = Measurement("a", "a", 3.0, "b", 8.0, 1.0).fastest_of(Measurement("a", "a", 4.0, "b", 6.0, 1.0))
    assert found == Measurement("a", "a", 3.0, "b", 6.0, 1.0)


def test_a_written_table_is_read_back(tmp_path):
    path = tmp_path / "results.json"
    assert table.committed_ratios(path) == {}
    table.written([measured("a", 0.5), measured("b", 1 / 3)], {"sgemm": 68.123456}, path)
    assert table.committed_ratios(path) == {"a": 0.5, "b": 0.3333}
    results = json.loads(path.read_text())
    assert results["measurements"]["a"] == {
        "name": "the one called a",
        "seconds": 5.0,
        "baseline": "the other",
        "baseline_seconds": 10.0,
        "ratio": 0.5,
        "limit": 1.0,
    }
    assert results["limits of the machine"] == {"sgemm": 68.12}
    assert results["machine"]["cores"] >= 1
    assert set(results["versions"]) == {"python", *table.PACKAGES}


def test_two_measurements_of_one_key_are_refused(tmp_path):
    with pytest.raises(ValueError, match="same key"):
        table.written([measured("a", 0.5), measured("a", 0.6)], {}, tmp_path / "results.json")


def test_markdown_has_a_line_for_each_measurement():
    lines = table.markdown([measured("a", 0.5)], {"sgemm": 68.123}).splitlines()
    assert "| the one called a | 5 | the other: 10 | 0.5 | 1 |" in lines
    assert "| sgemm | 68.1 |" in lines


def test_the_fastest_turn_of_each_side_counts(monkeypatch):
    durations = iter([3.0, 8.0, 2.0, 9.0, 5.0, 7.0])
    monkeypatch.setattr("benchmarks.measure.seconds", lambda work: next(durations))
    assert fastest_in_turns(3, object, object) == [2.0, 7.0]


def test_the_committed_ratios_are_those_of_the_committed_seconds():
    rows = json.loads(table.COMMITTED.read_text())["measurements"]
    assert set(rows) == set(table.committed_ratios())
    assert rows
    for row in rows.values():
        # Each of the three is rounded to four digits.
        assert row["ratio"] == pytest.approx(row["seconds"] / row["baseline_seconds"], rel=1.6e-3)
