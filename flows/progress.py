"""What a user sees while a run is under way: a bar for each stage in a terminal, plain lines elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from pipeline.results.run import TimeLeft, in_words
from pipeline.stages.stage import Outcome, Watch
from pipeline.store.ledger import StageLedger

# Between lines on a stage that takes long.
QUIET_SECONDS = 30.0


class Display(Watch):
    """Told what happens to a run, from its start on; this one shows nothing."""

    def ready(self) -> None:
        """The workers are there."""

    def noticed(self, message: str) -> None:
        """Something happened to a worker."""

    def closed(self) -> None:
        """The run has ended, well or not."""


class Clock(Display):
    """Keeps the time of stages."""

    def __init__(self, planned: Mapping[str, float] | None = None) -> None:
        self._left = TimeLeft(planned or {})
        self._begun = self._start = time.monotonic()
        self._stage, self._n_missing, self._n_done = "", 0, 0

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        self._start, self._stage, self._n_missing, self._n_done = time.monotonic(), ledger.stage, n_missing, 0

    def computed(self, ledger: StageLedger, partition: int) -> None:
        self._n_done += 1

    def finished(self, outcome: Outcome) -> None:
        self._left.finished(outcome.ledger.stage, self.seconds if outcome.n_computed else None)

    @property
    def seconds(self) -> float:
        """Of the stage that is under way."""
        return time.monotonic() - self._start

    @property
    def left(self) -> str:
        """Of the run, in words."""
        share = self._n_done / self._n_missing if self._n_missing else 1.0
        return in_words(self._left.of_run(self._stage, self.seconds, share))


class Lines(Clock):
    """One line for each stage that had something to compute, and one now and then while it does."""

    def __init__(self, say: Callable[[str], None], planned: Mapping[str, float] | None = None) -> None:
        super().__init__(planned)
        self._say, self._said = say, time.monotonic()
        self._timer: threading.Timer | None = None

    def ready(self) -> None:
        self._say(f"Ready after {time.monotonic() - self._begun:.1f} s.")

    def noticed(self, message: str) -> None:
        self._say(f"  {message}")

    def began(self, what: str) -> None:
        self._say(what)

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        super().started(ledger, n_partitions, n_missing)
        self._wait()

    def computed(self, ledger: StageLedger, partition: int) -> None:
        super().computed(ledger, partition)
        now = time.monotonic()
        if now - max(self._said, self._start) > QUIET_SECONDS and self._n_done < self._n_missing:
            self._said = now
            self._say(f"  {ledger.stage:<11} {self._n_done} of {self._n_missing} partitions, about {self.left} left")

    def finished(self, outcome: Outcome) -> None:
        self.closed()
        if outcome.n_computed:
            plural = "s" * (outcome.n_computed != 1)
            line = f"  {outcome.ledger.stage:<11} {outcome.n_computed:>5} partition{plural:<1} {self.seconds:8.1f} s"
            self._say(line)
        super().finished(outcome)

    def closed(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _wait(self) -> None:
        self.closed()
        self._timer = threading.Timer(QUIET_SECONDS, self._still)
        self._timer.daemon = True
        self._timer.start()

    def _still(self) -> None:
        """A stage of one piece, or with long partitions, says that it is under way."""
        if time.monotonic() - max(self._said, self._start) >= QUIET_SECONDS:
            self._said = time.monotonic()
            self._say(f"  {self._stage:<11} for {in_words(self.seconds)}, about {self.left} left")
        if self._timer is not None:  # else the stage has ended meanwhile
            self._wait()


class Left(ProgressColumn):
    """What the whole run will take still, beside the stage that is under way; it counts down within pieces too."""

    max_refresh = 0.5

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def render(self, task: Task) -> Text:
        return Text(f"about {self._clock.left} left" if task.fields["is_running"] else "")


class Bars(Clock):
    """A bar for each stage that had something to compute, with what the whole run will take still."""

    def __init__(self, console: Console, planned: Mapping[str, float] | None = None) -> None:
        super().__init__(planned)
        columns = (
            TextColumn("  {task.description:<11}"),
            BarColumn(30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            Left(self),
        )
        self._console, self._bars = console, Progress(*columns, console=console)
        self._bar: TaskID | None = None

    def ready(self) -> None:
        self._console.print(f"Ready after {time.monotonic() - self._begun:.1f} s.", highlight=False)

    def noticed(self, message: str) -> None:
        self._console.print(f"  {message}", highlight=False, markup=False)

    def began(self, what: str) -> None:
        self._bars.stop()
        self._console.print(what, highlight=False, markup=False)

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        super().started(ledger, n_partitions, n_missing)
        self._bars.start()
        if self._bar is not None:
            self._bars.remove_task(self._bar)  # the stage is tried again
        self._bar = self._bars.add_task(
            ledger.stage, total=n_partitions, completed=n_partitions - n_missing, is_running=True
        )

    def computed(self, ledger: StageLedger, partition: int) -> None:
        super().computed(ledger, partition)
        if self._bar is not None:
            self._bars.update(self._bar, advance=1)

    def finished(self, outcome: Outcome) -> None:
        super().finished(outcome)
        if self._bar is not None:
            self._bars.update(self._bar, is_running=False)
            self._bars.stop_task(self._bar)
            self._bar = None

    def closed(self) -> None:
        self._bars.stop()


class Several(Display):
    """Passes on what happens to several displays."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = displays

    def ready(self) -> None:
        for display in self._displays:
            display.ready()

    def began(self, what: str) -> None:
        for display in self._displays:
            display.began(what)

    def noticed(self, message: str) -> None:
        for display in self._displays:
            display.noticed(message)

    def closed(self) -> None:
        for display in self._displays:
            display.closed()

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        for display in self._displays:
            display.started(ledger, n_partitions, n_missing)

    def computed(self, ledger: StageLedger, partition: int) -> None:
        for display in self._displays:
            display.computed(ledger, partition)

    def finished(self, outcome: Outcome) -> None:
        for display in self._displays:
            display.finished(outcome)


_CURRENT: ContextVar[Display | None] = ContextVar("display", default=None)


def current_display() -> Display:
    """Where a flow shows what it does, besides its log: a flow's parameters must be plain values."""
    return _CURRENT.get() or Display()


@contextmanager
def shown_on(display: Display) -> Iterator[None]:
    """Flows within this context show what they do on a display."""
    token = _CURRENT.set(display)
    try:
        yield
    finally:
        display.closed()
        _CURRENT.reset(token)


def terminal_display(say: Callable[[str], None], planned: Mapping[str, float] | None = None) -> Display:
    """Bars where someone looks at them, lines where they are kept."""
    console = Console()
    return Bars(console, planned) if console.is_terminal else Lines(say, planned)
