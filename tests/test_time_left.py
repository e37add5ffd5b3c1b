"""Time left: from the plan at first, then at the pace of what has been seen; in words at the end."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.results.run import FASTEST, SLOWEST, TRUSTED_SECONDS, TimeLeft, in_words

STAGES = ("validate", "order", "neighbors", "rows", "embed", "publish")
DURATIONS = st.floats(0, 1e7)
PLANS = st.dictionaries(st.sampled_from(STAGES), DURATIONS)
# None: complete since an earlier run, nobody knows how long it took.
SEEN = st.dictionaries(st.sampled_from((*STAGES, "not planned")), st.none() | DURATIONS)
SHARES = st.tuples(st.integers(0, 500), st.integers(1, 500)).map(lambda counts: min(counts) / counts[1])


def told(planned, seen):
    left = TimeLeft(planned)
    for stage, seconds in seen.items():
        left.finished(stage, seconds)
    return left


@given(PLANS, SEEN, st.sampled_from(("", *STAGES)), DURATIONS, SHARES)
def test_nothing_is_negative_or_endless_and_a_run_takes_no_less_than_its_stage(planned, seen, stage, seconds, share):
    left = told(planned, seen)
    assert FASTEST <= left.pace <= SLOWEST
    assert 0 <= left.of_stage(stage, seconds, share) <= left.of_run(stage, seconds, share) < math.inf


@given(st.dictionaries(st.sampled_from(STAGES), st.floats(TRUSTED_SECONDS, 1e6), min_size=1), st.floats(1e-3, 1e3))
def test_the_pace_is_how_many_times_as_long_as_planned_stages_took_within_bounds(planned, times):
    left = told(planned, {stage: times * seconds for stage, seconds in planned.items()})
    assert left.pace == pytest.approx(min(SLOWEST, max(FASTEST, times)))


@given(PLANS, SEEN, st.sampled_from(STAGES))
def test_a_stage_whose_time_is_unknown_is_not_to_come_and_says_nothing_of_the_pace(planned, seen, stage):
    assume(stage not in seen)
    before, after = told(planned, seen), told(planned, {**seen, stage: None})
    assert after.pace == before.pace
    expected = before.of_run("", 0, 1) - before.pace * planned.get(stage, 0)
    assert after.of_run("", 0, 1) == pytest.approx(expected, rel=1e-9, abs=1e-3)


@given(PLANS, SEEN, DURATIONS)
def test_a_stage_that_was_not_planned_says_nothing_of_the_pace(planned, seen, seconds):
    assume("not planned" not in seen)
    assert told(planned, {**seen, "not planned": seconds}).pace == told(planned, seen).pace


@given(PLANS, SEEN, st.sampled_from(STAGES), DURATIONS, st.integers(1, 499))
def test_the_more_is_done_after_the_same_time_the_less_is_left(planned, seen, stage, seconds, done):
    left = told(planned, seen)
    assert left.of_run(stage, seconds, (done + 1) / 500) <= left.of_run(stage, seconds, done / 500)


@given(PLANS, SEEN)
def test_nothing_is_left_when_every_stage_is_complete(planned, seen):
    assert told(planned, {**dict.fromkeys(planned), **seen}).of_run("", 0.0, 1.0) == 0


def test_at_first_all_is_as_planned():
    left = TimeLeft({"order": 1.0, "rows": 30.0, "embed": 5.0})
    assert left.pace == 1.0
    assert left.of_run("order", 0.0, 0.0) == 36.0


@pytest.mark.parametrize(
    ("planned", "took", "pace"),
    [
        (1.9, 1.9, 1.0),
        (0.1, 1.9, 1.0),  # too little was seen
        (0.1, 2.0, 20.0),
        (0.5, 2.0, 4.0),
        (2.0, 0.5, 0.25),
        (10.0, 0.0, FASTEST),
        (10.0, 1000.0, SLOWEST),
        (0.0, 1000.0, 1.0),  # nothing to compare with
        (10.0, None, 1.0),
    ],
)
def test_the_pace_needs_some_seconds_and_has_bounds(planned, took, pace):
    assert told({"order": planned, "rows": 30.0}, {"order": took}).pace == pytest.approx(pace)


def test_stages_to_come_take_as_much_longer_as_those_before():
    left = told({"order": 10.0, "neighbors": 10.0, "rows": 30.0, "embed": 5.0}, {"order": 12.0, "neighbors": 28.0})
    assert left.pace == 2.0
    assert left.of_run("", 0.0, 1.0) == 70.0


def test_a_stage_goes_on_as_it_began():
    left = told({"order": 10.0, "rows": 30.0, "embed": 5.0}, {"order": 20.0})
    assert left.of_stage("rows", 7.0, 0.25) == 21.0
    assert left.of_run("rows", 7.0, 0.25) == 21.0 + 2 * 5.0
    assert left.of_stage("rows", 7.0, 1.0) == 0.0


def test_a_stage_of_which_nothing_is_done_has_its_planned_time_at_the_pace_so_far():
    left = told({"order": 10.0, "rows": 30.0}, {"order": 20.0})
    assert left.of_stage("rows", 15.0, 0.0) == 45.0
    assert left.of_stage("rows", 61.0, 0.0) == 0.0
    assert left.of_stage("not planned", 3.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.6, "1 s"),
        (89.4, "89 s"),
        (89.9, "90 s"),
        (90, "2 min"),
        (149, "2 min"),
        (600, "10 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (48 * 3600 - 1, "48.0 h"),
        (48 * 3600, "2.0 days"),
        (86_400 * 365, "365.0 days"),
    ],
)
def test_words_change_their_unit_at_borders(seconds, words):
    assert in_words(seconds) == words


@given(st.floats(0, 1e10))
def test_words_say_the_duration_to_half_their_last_digit(seconds):
    number, unit = in_words(seconds).split()
    size, digit = {"s": (1, 1), "min": (60, 1), "h": (3600, 0.1), "days": (86_400, 0.1)}[unit]
    assert abs(float(number) - seconds / size) <= digit / 2 + 1e-9 * seconds / size
