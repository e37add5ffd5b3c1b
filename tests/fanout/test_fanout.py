"""The partitions of a stage on workers: each once, whatever happens to a worker, and every fault in words."""

import re
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted
from small import contents

from pipeline.errors import InvalidInputError, LeaseHeldError, StageError
from pipeline.fanout import rounds
from pipeline.fanout.rounds import BATCH_SECONDS, LARGEST_BATCH, TRIES, Pace, batch_size
from pipeline.stages.stage import Work, ledger_of, run_stage, serially
from pipeline.store import lease
from pipeline.store.local import LocalBackend


@pytest.fixture
def marks(tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def ran(stage, root, execute):
    with lease.acquire(LocalBackend(root)) as held:
        return run_stage(held, stage, execute)


def committed(stage, root):
    with lease.acquire(LocalBackend(root), take_over=True) as held:
        return ledger_of(held, stage).complete()


def test_leaves_the_same_files_as_the_serial_run(cluster, marks, tmp_path):
    stage = Scripted(marks, 300)
    some = ran(stage, tmp_path / "serial", serially)
    others = ran(stage, tmp_path / "workers", cluster)
    assert (others.figures, others.n_computed) == (some.figures, 300)
    assert contents(tmp_path / "serial") == contents(tmp_path / "workers")
    assert set(stage.n_calls().values()) == {2}


def test_computes_only_what_is_missing(cluster, marks, tmp_path):
    stage = Scripted(marks, 40, "bug", at=39)
    with pytest.raises(StageError):
        ran(stage, tmp_path / "run", serially)
    assert committed(stage, tmp_path / "run") == list(range(39))
    ran(Scripted(marks, 40), tmp_path / "run", cluster)
    assert stage.n_calls() == dict.fromkeys(range(39), 1) | {39: 2}


@pytest.mark.parametrize(
    ("script", "kind", "words", "n_calls"),
    [
        ("bug", StageError, "stage scripted, partition 5: ZeroDivisionError: division by zero", 1),
        ("disk full", StageError, "partition 5: [Errno 28] No space left on device: 'chunk'", 1),
        ("passing", StageError, "partition 5: [Errno 5] Input/output error", TRIES),
        ("bad input", InvalidInputError, "rows 3, 5 are NaN; fill them.", 1),
        ("unsendable", StageError, "stage scripted, partition 5: UnsendableError: no way", 1),
        ("memory", StageError, "partition 5: does not fit into memory, most likely for lack of memory: workers ", 1),
    ],
)
def test_a_fault_is_named_and_nothing_else_is_lost(cluster, marks, tmp_path, script, kind, words, n_calls):
    stage = Scripted(marks, 30, script)
    with pytest.raises(kind, match=re.escape(words)) as caught:
        ran(stage, tmp_path / "run", cluster)
    assert stage.n_calls()[5] == n_calls
    if kind is StageError:
        assert (caught.value.stage, caught.value.partition) == ("scripted", 5)
    ran(Scripted(marks, 30), tmp_path / "run", cluster)
    assert [n for p, n in stage.n_calls().items() if p in (0, 5)] == [1, n_calls + 1]


def test_memory_is_told_with_figures(cluster, marks, tmp_path):
    with pytest.raises(StageError, match=r"MiB each; the stage is predicted to need 7 MiB; raise cluster\.memory_mib"):
        ran(Scripted(marks, 8, "memory"), tmp_path / "run", cluster)


def test_the_place_of_a_fault_comes_along(cluster, marks, tmp_path):
    with pytest.raises(StageError) as caught:
        ran(Scripted(marks, 8, "bug"), tmp_path / "run", cluster)
    assert "scripted.py" in caught.value.__notes__[0]


def test_what_passes_is_tried_again(cluster, marks, tmp_path):
    stage = Scripted(marks, 30, "passing twice")
    assert ran(stage, tmp_path / "run", cluster).figures == {"total": sum(range(30))}
    assert stage.n_calls() == dict.fromkeys(range(30), 1) | {5: 3}
    assert any("Input/output error; trying it again" in notice for notice in cluster.notices)


def test_a_lost_worker_is_made_up_for(cluster, marks, tmp_path):
    stage = Scripted(marks, 30, "kill once")
    assert ran(stage, tmp_path / "run", cluster).figures == {"total": sum(range(30))}
    assert set(committed(stage, tmp_path / "run")) == set(range(30))


@pytest.mark.cluster
def test_a_partition_that_always_kills_its_worker_is_named_after_bounded_tries(cluster, marks, tmp_path):
    stage = Scripted(marks, 30, "kill")
    with pytest.raises(StageError, match="stage scripted, partition 5: ended every worker that tried it"):
        ran(stage, tmp_path / "run", cluster)
    # Four times in a batch, perhaps, and four times alone.
    assert stage.n_calls()[5] <= 8


@pytest.mark.cluster
def test_what_a_dead_worker_committed_is_not_computed_again(cluster, marks, tmp_path):
    with lease.acquire(LocalBackend(tmp_path / "run")) as held:
        ledger = ledger_of(held, Scripted(marks, 12))
        stage = Scripted(marks, 12, "commit and die", written_by_a_dead_worker=ledger)
        run_stage(held, stage, cluster)
    assert stage.n_calls()[5] == 1


def test_workers_let_go_of_a_stage_when_it_is_done(cluster, marks, tmp_path):
    ran(Scripted(marks, 30), tmp_path / "run", cluster)
    deadline = time.monotonic() + 30
    while not list(marks.glob("released-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interruption_takes_back_what_waits(cluster, marks, tmp_path):
    stage = Scripted(marks, 400)

    def interrupted(_partition):
        raise KeyboardInterrupt

    with lease.acquire(LocalBackend(tmp_path / "run")) as held, pytest.raises(KeyboardInterrupt):
        cluster(Work(held, stage, ledger_of(held, stage)), range(400), interrupted)
    ran(stage, tmp_path / "run", cluster)
    assert sum(stage.n_calls().values()) <= 400 + 4 * LARGEST_BATCH


def test_a_run_that_lost_its_store_commits_nothing_more(cluster, marks, tmp_path):
    store = LocalBackend(tmp_path / "run")
    stage = Scripted(marks, 10)
    with lease.acquire(store) as held:
        lease.acquire(store, take_over=True)
        with pytest.raises(LeaseHeldError, match="this run lost"):
            run_stage(held, stage, cluster)
    assert committed(stage, tmp_path / "run") == []


class TestBatches:
    @given(st.floats(0, 100), st.integers(1, 10**6), st.integers(1, 1000))
    def test_take_about_as_long_as_they_should_and_leave_some_for_others(self, seconds, n_waiting, n_threads):
        size = batch_size(seconds, n_waiting, n_threads)
        assert 1 <= size <= LARGEST_BATCH
        assert size == 1 or size * seconds <= BATCH_SECONDS
        assert size == 1 or size <= n_waiting / n_threads

    def test_is_one_until_it_is_known_how_long_one_takes(self):
        assert batch_size(None, 10_000, 2) == 1

    def test_the_pace_is_that_of_all_threads_once_the_first_batch_has_loaded_the_stage(self, monkeypatch):
        times = iter([0.0, 3.0, 4.0, 5.0])
        # Not the module's own function: the threads of the cluster, which is still up, look at the clock too.
        monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: next(times)))
        pace = Pace()
        assert pace.seconds_each is None
        seen = []
        for n_partitions in (1, 4, 6):
            pace.ended(n_partitions, n_threads=2)
            seen.append(pace.seconds_each)
        assert seen == [3.0, 0.5, 0.4]
