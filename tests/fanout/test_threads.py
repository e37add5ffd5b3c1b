"""Work on threads of this process: the bytes of the serial run, faults as on workers, and workers once it is long."""

import threading
import time
from contextlib import contextmanager, nullcontext

import pytest
from scripted import Scripted
from small import SETTINGS, contents, roll_file
from threadpoolctl import threadpool_info

from pipeline.errors import ClusterError, InvalidInputError, StageError
from pipeline.fanout import cluster, growing
from pipeline.fanout.execution import executor
from pipeline.fanout.faults import TRIES
from pipeline.fanout.growing import SHORT_SECONDS, Growing, threads_within
from pipeline.fanout.threads import THREAD, Threads
from pipeline.jobs.fit import fit
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.stages.stage import BASE, Work, ledger_of, run_stage, serially
from pipeline.store import lease
from pipeline.store.local import LocalBackend


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return roll_file(tmp_path_factory.mktemp("source"))


def settings_of(source, store):
    return fit_settings({**SETTINGS, "n_landmarks": 30, "source": str(source), "store": str(store)})


@pytest.fixture(scope="module")
def whole(source):
    """A serial run of several partitions, not to be changed."""
    store = source.with_name("run")
    fit(settings_of(source, store))
    return store


@pytest.fixture
def marks(tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _no_thread_is_left(monkeypatch):
    """And no stage is left alone, however short."""
    monkeypatch.setattr(growing, "ALONE_SECONDS", 0.0)
    before = set(threading.enumerate())
    yield
    until(lambda: not [one for one in threading.enumerate() if one not in before and one.name == THREAD])


def on_threads(n_threads, notice=lambda _: None):
    """What computes on so many threads, and never on workers."""
    return Growing(no_workers, lambda _: n_threads, {}, notice, lambda: pytest.fail("it is said to be long"))


def no_workers():
    pytest.fail("workers are started")


def ran(stage, root, execute):
    with lease.acquire(LocalBackend(root)) as held:
        return run_stage(held, stage, execute)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("n_workers", [1, 2, 4])
def test_any_threads_leave_the_files_of_the_serial_run(source, whole, tmp_path, n_workers):
    with executor(ClusterSettings(kind="auto", n_workers=n_workers)) as execute:
        fit(settings_of(source, tmp_path / "run"), execute=execute)
    assert contents(tmp_path / "run") == contents(whole)
    assert len(list((whole / "order").glob("*/ledger/partition-*.json"))) > 1


def test_there_are_as_many_threads_as_are_asked_for(marks, tmp_path):
    """Partitions wait for each other, and none goes on before four of them are there."""
    barrier, at_once = threading.Barrier(4), []

    class Together(Scripted):
        def run_partition(self, ledger, partition):
            barrier.wait(30)
            # The pools of OpenMP, which faiss has, are each thread's own: whoever calls faiss limits them.
            shared = [pool for pool in threadpool_info() if pool.get("threading_layer") == "pthreads"]
            at_once.extend(pool["num_threads"] for pool in shared)
            return super().run_partition(ledger, partition)

    assert ran(Together(marks, 12), tmp_path / "run", on_threads(4)).figures == {"total": sum(range(12))}
    assert set(at_once) == {1}
    assert list(marks.glob("released-*"))


def test_threads_are_no_more_than_memory_has_room_for():
    count = threads_within(BASE + 1000, 8, {"large": BASE + 600, "small": BASE + 300, "huge": BASE + 10**6})
    assert [count(stage) for stage in ("large", "small", "huge", "unknown")] == [1, 3, 1, 8]
    assert threads_within(BASE + 1000, 8, {"small": BASE + 600}, of_one=2)("small") == 3


def test_computes_only_what_is_missing(marks, tmp_path):
    with pytest.raises(StageError):
        ran(Scripted(marks, 40, "bug", at=39), tmp_path / "run", serially)
    assert ran(Scripted(marks, 40), tmp_path / "run", on_threads(2)).n_computed == 1
    assert Scripted(marks, 40).n_calls() == dict.fromkeys(range(39), 1) | {39: 2}


def test_what_passes_is_tried_again(marks, tmp_path):
    notices = []
    stage = Scripted(marks, 30, "passing twice")
    assert ran(stage, tmp_path / "run", on_threads(2, notices.append)).figures == {"total": sum(range(30))}
    assert stage.n_calls() == dict.fromkeys(range(30), 1) | {5: 3}
    assert len(notices) == 2
    assert all("Input/output error; trying it again" in notice for notice in notices)


@pytest.mark.parametrize(
    ("script", "kind", "words", "n_calls"),
    [
        ("bug", StageError, "stage scripted, partition 5: ZeroDivisionError: division by zero", 1),
        ("disk full", StageError, "partition 5: .Errno 28. No space left on device", 1),
        ("passing", StageError, "partition 5: .Errno 5. Input/output error", TRIES),
        ("bad input", InvalidInputError, "rows 3, 5 are NaN; fill them", 1),
    ],
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_lasting_fault_is_raised_and_nothing_else_is_lost(marks, tmp_path, script, kind, words, n_calls, n_threads):
    stage = Scripted(marks, 30, script)
    with pytest.raises(kind, match=words):
        ran(stage, tmp_path / "run", on_threads(n_threads))
    assert stage.n_calls()[5] == n_calls
    ran(Scripted(marks, 30), tmp_path / "run", on_threads(n_threads))
    assert stage.n_calls() == dict.fromkeys(range(30), 1) | {5: n_calls + 1}


def test_an_interruption_leaves_what_waits(marks, tmp_path):
    stage = Scripted(marks, 400)

    def interrupted(_partition):
        raise KeyboardInterrupt

    with lease.acquire(LocalBackend(tmp_path / "run")) as held, pytest.raises(KeyboardInterrupt):
        on_threads(2)(Work(held, stage, ledger_of(held, stage)), range(400), interrupted)
    # They are not waited for.
    until(lambda: not any(thread.daemon and "_take" in thread.name for thread in threading.enumerate()))
    assert sum(stage.n_calls().values()) < 400


def test_what_no_thread_has_begun_is_taken_back(marks, tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    class Held(Scripted):
        def run_partition(self, ledger, partition):
            begun.set()
            go_on.wait(30)
            return super().run_partition(ledger, partition)

    stage = Held(marks, 9)
    with lease.acquire(LocalBackend(tmp_path / "run")) as held:
        work = Work(held, stage, ledger_of(held, stage))
        with Threads(work, range(9), 1) as threads:
            begun.wait(30)
            assert threads.take_back() == list(range(1, 9))
            assert not threads.are_done()
            go_on.set()
            found = []
            while not threads.are_done():
                found.append(threads.next())
    assert [partition for partition in found if partition is not None] == [0]


class Workers:
    """Stand in for workers: what is computed on them, and whether they are ended."""

    def __init__(self, may_start=lambda: True):
        self.computed, self.n_started, self.ended, self._may_start = [], 0, False, may_start

    @contextmanager
    def __call__(self):
        self.n_started += 1
        until(self._may_start)
        yield self._execute
        self.ended = True

    def _execute(self, work, partitions, computed):
        self.computed += [(work.stage.name, partition) for partition in partitions]
        serially(work, partitions, computed)


@pytest.mark.parametrize(
    ("planned", "is_long"),
    [
        ({"scripted": SHORT_SECONDS + 1}, True),
        ({"scripted": 1.0, "later": SHORT_SECONDS}, True),
        ({"scripted": SHORT_SECONDS - 1}, False),
        ({"before": 10 * SHORT_SECONDS, "scripted": 1.0}, False),
        ({"another": 10 * SHORT_SECONDS}, False),
    ],
)
def test_work_that_is_planned_to_be_long_starts_workers_once(marks, tmp_path, planned, is_long):
    workers, long = Workers(), []
    execute = Growing(workers, lambda _: 2, planned, lambda _: None, lambda: long.append(True))
    for folder in ("one", "other"):
        ran(Scripted(marks, 20), tmp_path / folder, execute)
    execute.close()
    assert (workers.n_started, len(long), workers.ended) == (is_long, is_long, is_long)


def test_work_that_proves_long_moves_to_workers_in_the_middle_of_a_stage(marks, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "SHORT_SECONDS", 0)
    workers, notices, seen = Workers(lambda: stage.calls(4)), [], []
    execute = Growing(workers, lambda _: 1, {}, notices.append, lambda: None)

    class HeldUntilThen(Scripted):
        def run_partition(self, ledger, partition):
            if partition == 5:
                until(execute._has_workers)
            return super().run_partition(ledger, partition)

    stage = HeldUntilThen(marks, 300)
    with lease.acquire(LocalBackend(tmp_path / "run")) as held:
        run_stage(held, stage, lambda work, partitions, _: execute(work, partitions, seen.append))
    assert not workers.ended
    execute.close()
    assert workers.ended
    assert sorted(seen) == list(range(300))
    assert set(stage.n_calls().values()) == {1}
    there = [partition for _, partition in workers.computed]
    assert there == list(range(there[0], 300))
    assert there[0] >= 4
    (notice,) = notices
    assert notice.startswith("workers are there, after ")
    ran(Scripted(marks, 300), tmp_path / "serial", serially)
    assert contents(tmp_path / "run") == contents(tmp_path / "serial")


def test_without_workers_that_can_be_started_it_goes_on(marks, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "SHORT_SECONDS", 0)
    notices = []

    def failing():
        raise ClusterError("the workers cannot be started")

    execute = Growing(failing, lambda _: 2, {}, notices.append, lambda: None)
    for folder in ("one", "other"):
        assert ran(Scripted(marks, 60), tmp_path / folder, execute).figures == {"total": sum(range(60))}
    execute.close()
    assert [notice.split(": ")[-1] for notice in notices] == ["the workers cannot be started; going on without workers"]


def test_a_long_fit_moves_to_workers_and_leaves_the_same_files(source, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "SHORT_SECONDS", 0)
    notices, long, here, there = [], [], [], []
    run = Work.run

    def noted(work, *more):
        here.append(work.stage.name)
        run(work, *more)

    monkeypatch.setattr(Work, "run", noted)
    settings = ClusterSettings(kind="auto", n_workers=2)
    with executor(settings, notice=notices.append, when_long=lambda: long.append(True)) as execute:

        def waiting(work, partitions, computed):
            if work.stage.name == "neighbors":
                until(execute._has_workers)
            if execute._has_workers():
                there.append(work.stage.name)
            execute(work, partitions, computed)

        fit(settings_of(source, tmp_path / "run"), execute=waiting)
    assert long == [True]
    (notice,) = notices
    assert notice.startswith("workers are there, after ")
    assert here[0] == "validate"
    assert {"neighbors", "rows", "embed", "publish"} <= set(there)
    assert not set(here) & {"neighbors", "rows", "embed", "publish"}
    assert contents(tmp_path / "run") == contents(whole)


def test_a_fit_with_nothing_left_to_do_starts_neither_threads_nor_workers(source, whole, monkeypatch):
    monkeypatch.setattr(growing, "SHORT_SECONDS", 0)
    monkeypatch.setattr(growing, "Threads", lambda *_: pytest.fail("threads are started"))
    monkeypatch.setattr(cluster, "dask_workers", lambda *_: nullcontext(pytest.fail("workers are started")))
    before = contents(whole)
    long = []
    settings = ClusterSettings(kind="auto", n_workers=2)
    with executor(settings, planned={"rows": 1e6}, when_long=lambda: long.append(True)) as execute:
        assert fit(settings_of(source, whole), execute=execute).n_computed == 0
    assert long == []
    assert contents(whole) == before
