"""What a user sees of a run: lines where they are kept, bars in a terminal."""

import inspect
import io
import re
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from flows import progress
from flows.progress import QUIET_SECONDS, Bars, Display, Lines, Several, current_display, shown_on, terminal_display
from flows.runner import FitJob, run_shown
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import fit_settings
from pipeline.stages.stage import Outcome
from pipeline.store.ledger import StageLedger

PLANNED = {"order": 10.0, "rows": 90.0, "model": 12.0}
EVENTS = sorted(name for name, _ in inspect.getmembers(Display, inspect.isfunction) if not name.startswith("_"))
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def ledger(stage):
    return StageLedger(None, stage, "0" * 20)


class Time:
    """Stands still unless told otherwise."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    time = Time()
    monkeypatch.setattr(progress, "time", time)
    return time


def show_stage(display, stage, n_partitions, n_missing, time=None, seconds=0.0):
    """A stage from its begin to its end, each partition after so many seconds."""
    display.started(ledger(stage), n_partitions, n_missing)
    for partition in range(n_missing):
        if time is not None:
            time.pass_by(seconds)
        display.computed(ledger(stage), partition)
    display.finished(Outcome(ledger(stage), {}, n_missing))


class TestLines:
    @given(st.lists(st.tuples(st.sampled_from(list(PLANNED)), st.integers(0, 5), st.integers(0, 3))))
    def test_one_line_for_each_stage_that_had_something_to_compute(self, stages):
        lines = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "time", Time())
            display = Lines(lines.append, PLANNED)
            for stage, n_missing, n_complete in stages:
                show_stage(display, stage, n_missing + n_complete, n_missing)
        shown = [(line.split()[0], int(line.split()[1])) for line in lines]
        assert shown == [(stage, n_missing) for stage, n_missing, _ in stages if n_missing]

    def test_a_line_says_how_many_partitions_took_how_long(self, clock):
        lines = []
        display = Lines(lines.append)
        show_stage(display, "order", 2, 2, clock, 0.75)
        show_stage(display, "rows", 30, 1, clock, 12.0)
        assert lines == ["  order           2 partitions      1.5 s", "  rows            1 partition      12.0 s"]

    def test_nothing_is_said_of_a_stage_that_was_complete_before(self):
        lines = []
        Lines(lines.append, PLANNED).finished(Outcome(ledger("rows"), {}, 0))
        assert lines == []

    def test_a_stage_that_takes_long_says_so_on_the_way_and_what_is_left(self, clock):
        lines = []
        display = Lines(lines.append, PLANNED)
        show_stage(display, "rows", 3, 3, clock, QUIET_SECONDS + 1)
        # As long again for what is left of this stage, and the plan for the others until something is known.
        assert [line.strip() for line in lines[:-1]] == [
            "rows        1 of 3 partitions, about 84 s left",
            "rows        2 of 3 partitions, about 53 s left",
        ]
        assert lines[-1].split() == ["rows", "3", "partitions", f"{3 * (QUIET_SECONDS + 1)}", "s"]

    def test_a_stage_of_one_piece_says_that_it_is_under_way(self, monkeypatch):
        monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
        lines = []
        display = Lines(lines.append, PLANNED)
        display.started(ledger("rows"), 1, 1)
        deadline = time.monotonic() + 30
        while len(lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        display.finished(Outcome(ledger("rows"), {}, 1))
        assert re.fullmatch(r"  rows        for 0 s, about \d+ \w+ left", lines[0])
        assert len(lines) >= 3

    def test_lines_on_the_way_are_apart(self, clock):
        lines = []
        show_stage(Lines(lines.append, PLANNED), "rows", 100, 100, clock, QUIET_SECONDS / 10)
        done = [int(line.split()[1]) for line in lines[:-1]]
        assert done == [11, 22, 33, 44, 55, 66, 77, 88, 99]

    def test_a_stage_is_not_long_for_what_came_before_it(self, clock):
        lines = []
        display = Lines(lines.append, PLANNED)
        for _ in range(2):
            clock.pass_by(10 * QUIET_SECONDS)
            show_stage(display, "rows", 2, 2, clock, QUIET_SECONDS / 4)
        assert len(lines) == 2

    def test_the_pace_of_stages_before_is_that_of_those_to_come(self, clock):
        lines = []
        display = Lines(lines.append, PLANNED)
        show_stage(display, "order", 1, 1, clock, 30.0)
        clock.pass_by(600.0)
        display.finished(Outcome(ledger("model"), {}, 0))
        display.started(ledger("rows"), 4, 4)
        assert display.left == "4 min"  # 3 times 90 s, whatever has passed before a stage that was complete
        display.noticed("a worker was lost")
        assert lines[-1] == "  a worker was lost"

    def test_workers_are_said_to_be_ready(self, clock):
        lines = []
        display = Lines(lines.append)
        clock.pass_by(7.25)
        display.ready()
        display.closed()
        assert lines == ["Ready after 7.2 s."]


@pytest.fixture
def console():
    """A terminal whose text is kept."""
    return Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100, _environ={"TERM": "xterm"})


def printed(console):
    return console.file.getvalue()


def shown_last(console, n_lines):
    """The lines that stand in the terminal at the end, without control codes."""
    text = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", printed(console)).replace("\r", "\n")
    return [line.strip() for line in text.splitlines() if line.strip()][-n_lines:]


class TestBars:
    def test_stages_with_counts_and_what_is_left(self, console, clock):
        display = Bars(console, PLANNED)
        display.ready()
        show_stage(display, "order", 3, 3, clock, 5.0)
        display.started(ledger("rows"), 5, 4)
        clock.pass_by(10)
        display.computed(ledger("rows"), 2)
        display.closed()
        assert "Ready after 0.0 s." in printed(console)
        order, rows = shown_last(console, 2)
        assert "order" in order
        assert "3/3" in order
        assert "left" not in order
        assert "rows" in rows
        assert "2/5" in rows
        assert "about 48 s left" in rows  # three more of 10 s each, and the model takes half as long again as planned

    def test_nothing_is_shown_for_a_stage_that_was_complete_before(self, console):
        display = Bars(console, PLANNED)
        display.ready()
        display.finished(Outcome(ledger("order"), {}, 0))
        show_stage(display, "rows", 2, 2)
        display.closed()
        assert "rows" in printed(console)
        assert "order" not in printed(console)

    def test_what_happens_to_workers_is_said_as_it_is(self, console):
        display = Bars(console)
        display.ready()
        display.noticed("worker [red]tcp://127.0.0.1:5[/red] was lost")
        display.closed()
        assert "  worker [red]tcp://127.0.0.1:5[/red] was lost" in printed(console)

    @pytest.mark.parametrize("events", [["ready"], []])
    def test_closed_the_cursor_is_back_and_nothing_runs_on(self, console, events):
        before = set(threading.enumerate())
        display = Bars(console, PLANNED)
        for event in events:
            getattr(display, event)()
        display.started(ledger("rows"), 5, 5)
        (refreshing,) = set(threading.enumerate()) - before
        display.closed()
        display.closed()
        refreshing.join(60)
        assert not refreshing.is_alive()
        assert printed(console).rindex(SHOW_CURSOR) > printed(console).rindex(HIDE_CURSOR)

    @pytest.mark.parametrize("events", [[], ["ready"], ["closed"]])
    def test_closed_before_any_stage_began_there_is_nothing_to_clear(self, console, events):
        before = set(threading.enumerate())
        display = Bars(console, PLANNED)
        for event in events:
            getattr(display, event)()
        display.closed()
        assert set(threading.enumerate()) <= before
        assert HIDE_CURSOR not in printed(console)


class Recording(Display):
    """Remembers what it was told."""

    def __init__(self):
        self.told = []

    def __getattribute__(self, name):
        if name not in EVENTS:
            return super().__getattribute__(name)
        return lambda *arguments: self.told.append((name, arguments))


ARGUMENTS = {
    "noticed": ("a worker was lost",),
    "began": ("b1.npy -> placed/b1",),
    "started": (ledger("rows"), 5, 3),
    "computed": (ledger("rows"), 4),
    "finished": (Outcome(ledger("rows"), {"n": 1}, 3),),
}


@pytest.mark.parametrize("event", EVENTS)
def test_several_displays_are_all_told_everything(event):
    displays = [Recording(), Recording()]
    arguments = ARGUMENTS.get(event, ())
    getattr(Several(displays), event)(*arguments)
    assert [display.told for display in displays] == [[(event, arguments)]] * 2


@pytest.mark.parametrize("event", EVENTS)
def test_a_display_of_its_own_shows_nothing(event, capsys):
    assert getattr(Display(), event)(*ARGUMENTS.get(event, ())) is None
    assert capsys.readouterr() == ("", "")


class TestChoice:
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    @pytest.fixture(autouse=True)
    def plain_environment(self, monkeypatch):
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)

    def test_lines_where_output_is_no_terminal(self, monkeypatch):
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        lines = []
        display = terminal_display(lines.append, PLANNED)
        assert isinstance(display, Lines)
        display.noticed("a worker was lost")
        assert lines == ["  a worker was lost"]
        assert display.left == "2 min"  # planned: 112 s

    def test_bars_in_a_terminal(self, monkeypatch):
        monkeypatch.setattr(sys, "stdout", self.Terminal())
        lines = []
        display = terminal_display(lines.append, PLANNED)
        assert isinstance(display, Bars)
        display.noticed("a worker was lost")
        assert sys.stdout.getvalue() == "  a worker was lost\n"
        assert lines == []


class TestShownOn:
    def test_flows_within_show_on_the_display_which_is_closed_after_them(self):
        outer, inner = Recording(), Recording()
        assert type(current_display()) is Display
        with shown_on(outer):
            assert current_display() is outer
            with shown_on(inner):
                assert current_display() is inner
                assert inner.told == []
            assert current_display() is outer
            assert (inner.told, outer.told) == ([("closed", ())], [])
        assert outer.told == [("closed", ())]
        assert type(current_display()) is Display

    def test_also_where_a_run_fails(self):
        display = Recording()

        def failing():
            with shown_on(display):
                raise RuntimeError("no disk")

        with pytest.raises(RuntimeError, match="no disk"):
            failing()
        assert display.told == [("closed", ())]
        assert type(current_display()) is Display


def test_a_fit_in_this_process_shows_its_bars(tmp_path, console):
    np.save(tmp_path / "roll.npy", swiss_roll(1500, seed=0).points)
    given = {"source": str(tmp_path / "roll.npy"), "store": str(tmp_path / "run"), "n_landmarks": 40}
    settings = fit_settings({**given, "cluster": {"kind": "serial"}})
    job = FitJob(settings)
    run_shown(job, False, Bars(console, job.plan.seconds), lambda _: None)
    assert "publish" in printed(console)
