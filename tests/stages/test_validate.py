"""The scan of a source, and what a crash in the middle of it leaves behind."""

import numpy as np
import pytest
from faults import Crash, FaultyStore

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.stage import run_stage
from pipeline.stages.validate import Validate
from pipeline.store import lease
from pipeline.store.local import LocalBackend

N_ROWS = 3 * GRAIN_ROWS + 100


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(0).normal(size=(N_ROWS, 3)) + 1e6


class CountingValidate(Validate):
    """Counts which partitions were computed."""

    computed: list[int]

    def run_partition(self, ledger, partition):
        result = super().run_partition(ledger, partition)
        self.computed.append(partition)
        return result


def validated(store, data, grains_each=1, computed=None):
    CountingValidate.computed = [] if computed is None else computed
    store.sweep_partials()
    with lease.acquire(store) as held:
        return run_stage(held, CountingValidate(open_source(data), RowPartitions(len(data), grains_each)))


def contents(store):
    """Every file below the root but the lease, with its bytes."""
    return {
        str(path.relative_to(store.root)): path.read_bytes()
        for path in sorted(store.root.rglob("*"))
        if path.is_file() and "lease" not in path.parts
    }


def test_figures_describe_the_source(tmp_path, data):
    outcome = validated(LocalBackend(tmp_path), data)
    assert outcome.n_computed == 4
    figures = outcome.figures
    assert (figures["n_rows"], figures["n_columns"], figures["dtype"]) == (N_ROWS, 3, "<f8")
    assert figures["largest"] == np.abs(data).max()
    mean, squares = outcome.ledger.read("moments").read()
    np.testing.assert_allclose(mean, data.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(squares / N_ROWS, data.var(axis=0), rtol=1e-9)


def test_a_second_run_computes_nothing(tmp_path, data):
    store = LocalBackend(tmp_path)
    first = validated(store, data)
    before = contents(store)
    second = validated(store, data)
    assert second.n_computed == 0
    assert CountingValidate.computed == []
    assert second.figures == first.figures
    assert contents(store) == before


@pytest.mark.parametrize("grains_each", [2, 3, 100])
def test_results_do_not_depend_on_the_size_of_partitions(tmp_path, data, grains_each):
    small = validated(LocalBackend(tmp_path / "a"), data)
    large = validated(LocalBackend(tmp_path / "b"), data, grains_each)
    assert {**large.figures, "rows_each": 0} == {**small.figures, "rows_each": 0}
    np.testing.assert_array_equal(large.ledger.read("moments").read(), small.ledger.read("moments").read())


def test_another_content_has_another_name(tmp_path, data):
    store = LocalBackend(tmp_path)
    changed = data.copy()
    changed[-1, 0] += 1
    first, second = validated(store, data), validated(store, changed)
    assert first.ledger.digest != second.ledger.digest
    assert first.figures["content"] != second.figures["content"]


def test_bad_entries_are_counted_and_named_in_all_partitions(tmp_path, data):
    spoiled = data.copy()
    spoiled[[5, GRAIN_ROWS + 7], 1] = np.nan
    spoiled[-1] = np.inf
    with pytest.raises(InvalidInputError, match=rf"5 NaN .* first in rows 5, {GRAIN_ROWS + 7}, {N_ROWS - 1} "):
        validated(LocalBackend(tmp_path), spoiled)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_sizes_beyond_reach_are_refused(tmp_path, data, scale):
    with pytest.raises(InvalidInputError, match="rescale"):
        validated(LocalBackend(tmp_path), data * scale)


def test_whole_numbers_are_taken(tmp_path):
    table = np.arange(300, dtype=np.uint8)[:, None] % 7
    figures = validated(LocalBackend(tmp_path), table).figures
    assert (figures["largest"], figures["dtype"]) == (6.0, "|u1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, data):
    store = FaultyStore(tmp_path_factory.mktemp("whole"))
    validated(store, data, grains_each=2)
    return contents(store), len(store.operations)


class TestCrash:
    """Die at every single write, run again: same bytes, nothing committed computed twice, nothing left over."""

    def test_the_undisturbed_run_has_operations_to_crash_at(self, undisturbed):
        assert undisturbed[1] > 10

    @pytest.mark.parametrize("halfway", [False, True])
    def test_at_every_operation(self, tmp_path, data, undisturbed, halfway):
        expected, n_operations = undisturbed
        for crash_at in range(1, n_operations + 1):
            root = tmp_path / f"{crash_at}"
            computed: list[int] = []
            store = FaultyStore(root, crash_at=crash_at, halfway=halfway)
            with pytest.raises(Crash):
                validated_without_release(store, data, computed)
            survivors = committed_partitions(root)
            again: list[int] = []
            validated(LocalBackend(root), data, 2, again)
            assert not survivors & set(again), crash_at
            assert contents(LocalBackend(root)) == expected, crash_at


def validated_without_release(store, data, computed):
    """As a process that dies: whatever it holds stays held, by a process number that is gone."""
    CountingValidate.computed = computed
    held = lease.acquire(store)
    try:
        run_stage(held, CountingValidate(open_source(data), RowPartitions(len(data), 2)))
        held.release()
    finally:
        for path in (store.root / "lease").glob("*.json"):
            path.write_text(path.read_text().replace(f'"pid":{held.holder["pid"]}', '"pid":4194305'))


def committed_partitions(root):
    return {int(p.stem.removeprefix("partition-")) for p in root.rglob("partition-*.json")}
