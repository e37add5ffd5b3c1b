"""How far a run is, as others see it: under way with the time that is left, stopped, published."""

import json
import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from flows import cli
from flows.status import status_report
from pipeline.jobs.fit import STAGES, fit
from pipeline.numerics.datasets import swiss_roll
from pipeline.results import run as runs
from pipeline.results.run import in_words
from pipeline.settings import fit_settings
from pipeline.stages.stage import Watch
from pipeline.store import lease, run
from pipeline.store.backend import canonical, digest_of

BEFORE_ROWS = [stage for stage in STAGES[: STAGES.index("rows")] if stage != "axes"]
AFTER_ROWS = list(STAGES[STAGES.index("rows") + 1 :])
N_BATCHES = 8
BEGIN = 1_700_000_000.0


class Stopped(Exception):  # noqa: N818  it is no error
    """The run is left here."""


class StopAt(Watch):
    """Looks at the status while the run is under way, then stops it."""

    def __init__(self, stage, partition):
        self._where = stage, partition
        self.seen = None

    def computed(self, ledger, partition):
        if (ledger.stage, partition) == self._where:
            self.seen = status_report(str(ledger.store.root))
            raise Stopped


def settings_of(source, store, **changes):
    given = {"source": str(source), "store": str(store), "n_landmarks": 60, "cluster": {"kind": "serial"}}
    return fit_settings({**given, **changes})


def begin_fit(settings, stage, partition):
    """Fit up to a partition of a stage; what the status was there."""
    watch = StopAt(stage, partition)
    with pytest.raises(Stopped):
        fit(settings, watch)
    return watch.seen


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "roll.npy"
    np.save(path, swiss_roll(2000, seed=0).points)
    return path


@pytest.fixture(scope="module")
def stopped(source):
    """A run that was stopped after three batches of landmarks, not to be changed; and its status just before."""
    store = source.with_name("stopped")
    return store, begin_fit(settings_of(source, store), "rows", 2)


@pytest.fixture
def store(stopped, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(stopped[0], tmp_path / "run")


@pytest.fixture
def held(store):
    """The same, as if this process were at work on it."""
    with lease.acquire(run.open_store(store, writable=True)):
        yield store


@pytest.fixture(scope="module")
def published(source):
    store = source.with_name("published")
    settings = settings_of(source, store)
    fit(settings)
    return store


@pytest.fixture
def status(capsys, monkeypatch):
    """Run the command in this process: its last line, and what it says to programs."""

    def output(*arguments):
        monkeypatch.setattr(sys, "argv", ["trigpoint", "status", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        assert (end.value.code or 0, printed.err) == (0, "")
        return printed.out

    return lambda store: (output(store).splitlines()[-1], json.loads(output(store, "--json")))


def test_a_run_that_goes_on_says_how_far_it_is_and_what_is_left(stopped):
    store, (value, lines) = stopped
    assert lines[:-1] == [f"  {stage:<11} complete" for stage in BEFORE_ROWS] + [
        f"  rows        3 of {N_BATCHES} partitions"
    ]
    assert value["seconds_left"] > 0
    assert lines[-1] == f"{store}: not complete; under way, about {in_words(value['seconds_left'])} left."
    assert not value["published"]
    assert [stage["stage"] for stage in value["stages"]] == [*BEFORE_ROWS, "rows"]
    assert value["stages"][-1]["n_committed"] == 3


def test_a_run_of_a_live_process_is_under_way(held, status):
    line, value = status(held)
    assert line.startswith(f"{held}: not complete; under way, about ")
    assert line.endswith(" left.")
    assert isinstance(value["seconds_left"], float)
    assert value["seconds_left"] >= 0


def test_a_run_that_was_stopped_is_not_complete_and_no_more(store, status):
    line, value = status(store)
    assert line == f"{store}: not complete."
    assert (value["published"], value["seconds_left"]) == (False, None)


def latest_lease(store):
    return max((store / "lease").iterdir())


def change_holder(store, **identity):
    path = latest_lease(store)
    path.write_bytes(canonical({**json.loads(path.read_bytes()), **identity}))


@pytest.mark.parametrize("change", [{"started": "1"}, {"boot": "an earlier one"}], ids=["process", "boot"])
def test_a_run_whose_process_is_gone_is_not_complete_and_no_more(held, status, change):
    """Its number may be another's by now, or the machine was started again."""
    change_holder(held, **change)
    line, value = status(held)
    assert line == f"{held}: not complete."
    assert value["seconds_left"] is None


def test_a_run_elsewhere_may_be_under_way(held, status):
    change_holder(held, host="another machine", started="1")
    assert "under way" in status(held)[0]


def test_a_finished_run_is_published_and_has_nothing_left(published, status):
    line, value = status(published)
    assert line == f"{published}: published."
    assert (value["published"], value["seconds_left"]) == (True, None)
    assert {stage["stage"] for stage in value["stages"]} == {*BEFORE_ROWS, "rows", *AFTER_ROWS}
    assert all(stage["complete"] for stage in value["stages"])


def test_a_published_run_on_which_the_same_command_runs_again_is_published(published, tmp_path, status):
    store = shutil.copytree(published, tmp_path / "run")
    with lease.acquire(run.open_store(store, writable=True)):
        line, value = status(store)
    assert (line, value["seconds_left"]) == (f"{store}: published.", None)


def test_a_published_run_of_which_another_is_to_be_made_is_under_way(source, published, tmp_path):
    store = shutil.copytree(published, tmp_path / "run")
    value, lines = begin_fit(settings_of(source, store, n_components=3), "embed", 0)
    assert value["published"]
    assert value["seconds_left"] >= 0
    assert lines[-1].startswith(f"{store}: not complete; under way, about ")


def test_nothing_is_said_of_time_where_none_was_planned(held, status):
    run.write_plan(run.open_store(held, writable=True), {})
    line, value = status(held)
    assert line == f"{held}: not complete."
    assert value["seconds_left"] is None


def sealed(value):
    return canonical({**value, "seal": digest_of(canonical(value))})


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"seconds":{"ro', id="cut"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b'{"seconds":{"rows":30.0}}', id="no seal"),
        pytest.param(sealed({"seconds": {"rows": 30.0}}).replace(b"30", b"31"), id="changed"),
        pytest.param(b'{"seconds":{"rows":NaN},"seal":"0"}', id="not a number"),
        pytest.param(b"[" * 100_000, id="nested too deep"),
    ],
)
def test_a_damaged_plan_costs_only_the_time_left(held, status, data):
    assert status(held)[1]["seconds_left"] is not None
    (held / "plan.json").write_bytes(data)
    line, value = status(held)
    assert line == f"{held}: not complete."
    assert value["seconds_left"] is None
    assert len(value["stages"]) == len(BEFORE_ROWS) + 1


def test_a_damaged_plan_is_written_anew(store):
    opened = run.open_store(store, writable=True)
    (store / "plan.json").write_bytes(b"{")
    assert run.read_plan(opened) == {}
    run.write_plan(opened, {"rows": 30.0})
    assert run.read_plan(run.open_store(store)) == {"rows": 30.0}


class TestSecondsLeft:
    """Exact figures: every stage is planned to take 10 s, and files are as old as they are said to be."""

    @pytest.fixture(autouse=True)
    def plan(self, held):
        run.write_plan(run.open_store(held, writable=True), dict.fromkeys([*BEFORE_ROWS, "rows", *AFTER_ROWS], 10.0))

    @pytest.fixture
    def seconds_left(self, held, monkeypatch):
        """The answer at a time, for the times at which stages and batches of landmarks were complete."""

        def answer(now, stages, batches):
            os.utime(latest_lease(held), (BEGIN, BEGIN))
            for stage, when in stages.items():
                (path,) = (held / stage).glob("*/ledger/finished.json")
                os.utime(path, (when, when))
            for batch, when in enumerate(batches):
                (path,) = (held / "rows").glob(f"*/ledger/partition-{batch:08d}.json")
                os.utime(path, (when, when))
            monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: now))
            return runs.open_run(held).seconds_left()

        return answer

    def test_stages_go_on_at_the_pace_of_those_before_and_batches_at_theirs(self, seconds_left):
        ends = {stage: BEGIN + 20.0 * i for i, stage in enumerate(BEFORE_ROWS, 1)}
        start = max(ends.values())
        left = seconds_left(start + 6, ends, [start + 2, start + 4, start + 6])
        assert left == pytest.approx(6 * (N_BATCHES - 3) / 3 + 2 * 10 * len(AFTER_ROWS))

    @pytest.mark.parametrize("before", [0.0, 100.0])
    def test_what_was_complete_before_says_nothing_of_the_pace(self, seconds_left, before):
        ends = dict.fromkeys(BEFORE_ROWS, BEGIN - before)
        left = seconds_left(BEGIN + 4, ends, [BEGIN - 50] * 3)
        assert left == pytest.approx((10 - 4) + 10 * len(AFTER_ROWS))

    def test_batches_that_were_complete_before_are_not_to_be_computed(self, seconds_left):
        ends = dict.fromkeys(BEFORE_ROWS, BEGIN - 100)
        left = seconds_left(BEGIN + 8, ends, [BEGIN - 50, BEGIN - 50, BEGIN + 8])
        assert left == pytest.approx(8 * (N_BATCHES - 3) / 1 + 10 * len(AFTER_ROWS))

    def test_a_stage_that_takes_longer_than_planned_has_nothing_left(self, seconds_left):
        ends = dict.fromkeys(BEFORE_ROWS, BEGIN - 100)
        assert seconds_left(BEGIN + 400, ends, [BEGIN - 50] * 3) == pytest.approx(10 * len(AFTER_ROWS))

    def test_stages_after_the_last_that_was_begun_are_to_come(self, held, seconds_left):
        store = run.open_store(held, writable=True)
        run.write_journal(store, run.read_journal(store)[:-1])
        ends = {stage: BEGIN + 30.0 * i for i, stage in enumerate(BEFORE_ROWS, 1)}
        assert seconds_left(max(ends.values()) + 1, ends, []) == pytest.approx(3 * 10 * (1 + len(AFTER_ROWS)))
