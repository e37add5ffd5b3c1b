"""Stages on objects that a function compares: landmarks as they were, work in small pieces, values read once."""

import errno
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.fanout.faults import is_passing
from pipeline.sources.objects import Comparison, open_objects
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.landmarks import Landmarks
from pipeline.stages.providers.objects import (
    Compare,
    ComparedRows,
    ObjectCandidates,
    ScanObjects,
    Subset,
    landmark_objects,
)
from pipeline.stages.stage import run_stage
from pipeline.store import lease
from pipeline.store.ledger import StageLedger
from pipeline.store.local import LocalBackend


@pytest.fixture
def done(tmp_path):
    """Runs stages in a store."""
    with lease.acquire(LocalBackend(tmp_path / "store")) as held:
        yield lambda stage, **options: run_stage(held, stage, **options)


def text_file(tmp_path, texts):
    path = tmp_path / "texts.txt"
    path.write_bytes("\n".join(texts).encode())
    return open_objects(path)


def scanned_and_landmarks(done, source, n_landmarks):
    scanned = done(ScanObjects(source, RowPartitions(source.n_rows, 1)))
    return scanned, done(Landmarks(ObjectCandidates(source, scanned, n_landmarks), n_landmarks, "random", 0))


def test_landmarks_are_the_texts_as_they_were(tmp_path, done):
    texts = ["", "a", "a\0", "a\0\0", "\0", "é", "漢字", " b ", "\u0085", "x" * 3000, "z."]
    landmarks = scanned_and_landmarks(done, text_file(tmp_path, texts), len(texts))[1]
    rows = landmarks.ledger.read("rows").read()
    assert landmark_objects(landmarks) == [texts[row] for row in rows]


def test_landmarks_take_the_memory_of_the_texts_not_of_the_longest_for_each(tmp_path, done):
    texts = [f"text {i}" for i in range(499)] + ["x" * 200_000]
    source = text_file(tmp_path, texts)
    tracemalloc.start()
    try:
        landmarks = scanned_and_landmarks(done, source, 500)[1]
        found = landmark_objects(landmarks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sorted(found) == sorted(texts)
    assert peak < 10 * 200_000


def number_file(tmp_path, n_rows):
    path = tmp_path / "points.npy"
    np.save(path, np.random.default_rng(0).normal(size=(n_rows, 4)))
    return open_objects(path)


def test_a_subset_is_chosen_after_many_pieces_of_work(tmp_path, done):
    landmarks = scanned_and_landmarks(done, number_file(tmp_path, 100), 40)[1]
    outcome = done(Subset(landmarks, Comparison("math:dist"), 5))
    assert outcome.n_computed == 5 * 3
    assert (outcome.figures["n_evaluations"], outcome.figures["n_evaluated"]) == (40 * 40, 5)
    points = landmark_objects(landmarks)
    between = outcome.ledger.read("between").read()
    np.testing.assert_allclose(between, cdist(points, points), rtol=1e-12, atol=1e-15)
    subset = outcome.ledger.read("subset").read()
    assert subset[0] == np.argmin((between**2).mean(axis=0))
    assert len(np.unique(subset)) == 5


def test_a_kernels_values_of_landmarks_are_read_once_for_all_blocks(tmp_path, done, monkeypatch):
    source = number_file(tmp_path, 100)
    scanned, landmarks = scanned_and_landmarks(done, source, 40)
    compared = done(Compare(source, scanned, landmarks, Comparison("numpy:dot", is_kernel=True)))
    rows, points = ComparedRows(compared, landmarks, True, source.name), source.read(0, 100)
    read, names = StageLedger.read, []
    monkeypatch.setattr(StageLedger, "read", lambda *given: (names.append(given[1]), read(*given))[1])
    found = np.concatenate([rows.read(start, start + 8)[0] for start in range(0, 96, 8)])
    expected = cdist(points[:96], landmark_objects(landmarks))
    np.testing.assert_allclose(np.ldexp(found, rows.exponent), expected, rtol=0, atol=1e-6)
    parts = [name for name in names if name.startswith(("values-", "own-"))]
    assert (names.count("landmarks_own"), len(parts)) == (1, 12 * (3 + 1))


def test_another_source_where_it_is_evaluated_is_refused(tmp_path):
    here = Comparison.named("pipeline.sources.partitions:automatic_bytes")
    assert len(here.source) == 64
    elsewhere = replace(here, source="0" * 64)
    with pytest.raises(InvalidInputError, match="has another source here than where the command was started"):
        elsewhere.table([1], [2], [0], [0])


def test_a_function_without_a_source_goes_by_its_name():
    assert Comparison.named("builtins:max").source == ""
    np.testing.assert_array_equal(Comparison.named("builtins:max").table([1], [2], [0], [0]), [[2.0]])


@pytest.mark.parametrize("error", [TimeoutError("slow"), ConnectionError("lost"), OSError(errno.EIO, "broken")])
def test_a_fault_that_may_pass_is_tried_again(error, monkeypatch):
    def failing(one, other):
        raise error

    monkeypatch.setattr("builtins.max", failing)
    with pytest.raises(
        type(error), match=r"metric='builtins:max' fails for row 7 and the landmark in row 9: "
    ) as caught:
        Comparison("builtins:max").table(["a"], ["b"], [7], [9])
    assert is_passing(caught.value)
