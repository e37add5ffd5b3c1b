"""Runs on objects that a function of the user's compares: what is stored, called, planned and refused."""

import sys

import numpy as np
import pytest
from small import Counting, extended, fitted

from pipeline import open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.fit import checked_source, plan_fit
from pipeline.jobs.portable import export_model
from pipeline.settings import fit_settings
from pipeline.stages.stage import Watch

OBJECTS = {"input": "objects", "method": "mds", "n_landmarks": 20}
APART = {**OBJECTS, "metric": "edit_distance:apart"}


@pytest.fixture
def points(tmp_path):
    path = tmp_path / "points.npy"
    np.save(path, np.random.default_rng(0).normal(size=(60, 3)))
    return path


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of the user's, as an editor would, for a process that has not imported it yet."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text):
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        (tmp_path / "mine.py").write_text(text)

    yield write
    sys.modules.pop("mine", None)


class Tasks(Watch):
    """Counts the partitions of every stage."""

    def __init__(self):
        self.counts = {}

    def started(self, ledger, n_partitions, n_missing):
        self.counts[ledger.stage] = n_partitions


def planned(source, **settings):
    asked = fit_settings({**settings, "source": str(source), "store": f"{source}.run", "cluster": {"kind": "serial"}})
    return plan_fit(asked, checked_source(asked))


@pytest.mark.parametrize("n_evaluated", [None, 4])
def test_a_plan_has_the_stages_and_tasks_of_the_fit(points, tmp_path, n_evaluated):
    watch = Tasks()
    fitted(points, tmp_path / "run", watch, **APART, n_evaluated=n_evaluated)
    plan = planned(points, **APART, n_evaluated=n_evaluated, n_neighbors=8, partition_mib=1)
    assert {stage.stage: stage.n_tasks for stage in plan.stages} == watch.counts


def test_a_plan_has_the_choice_of_a_subset_even_if_it_may_be_all(points):
    assert "subset" in planned(points, **APART, n_evaluated=20).seconds
    assert "subset" not in planned(points, **APART).seconds


def test_a_plan_refuses_more_evaluated_landmarks_than_there_are(points):
    with pytest.raises(
        InvalidInputError, match="n_evaluated=50 is out of range; use at most 20, the number of landmarks"
    ):
        planned(points, **APART, n_evaluated=50)


def test_objects_of_another_kind_are_refused_with_both_kinds(points, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("\n".join(f"{i:b}" for i in range(60)))
    fitted(points, tmp_path / "numbers", **APART)
    fitted(words, tmp_path / "texts", **OBJECTS, metric="edit_distance:levenshtein")
    with pytest.raises(InvalidInputError, match=r"words\.txt holds texts, and the run was fitted on rows of numbers"):
        extended(tmp_path / "numbers", words, tmp_path / "new")
    with pytest.raises(InvalidInputError, match=r"points\.npy holds rows of numbers, and the run was fitted on texts"):
        extended(tmp_path / "texts", points, tmp_path / "new")


DISTANCE = "def distance(a, b):\n    return abs(a - b).sum()\n"
MINE = {**OBJECTS, "metric": "mine:distance"}


def test_an_edited_function_is_called_again_and_an_unchanged_one_is_not(points, tmp_path, module):
    module(DISTANCE)
    assert "rows" in fitted(points, tmp_path / "run", **MINE).stages
    before = open_run(tmp_path / "run").embedding()
    module(DISTANCE)
    assert fitted(points, tmp_path / "run", **MINE).stages == []
    module(DISTANCE.replace("sum()", "sum() * 2"))
    again = fitted(points, tmp_path / "run", **MINE).stages
    assert "rows" in again
    assert "landmarks" not in again
    np.testing.assert_allclose(open_run(tmp_path / "run").embedding(), 2 * before, rtol=1e-12)


@pytest.mark.parametrize("n_evaluated", [None, 4])
def test_new_rows_are_not_measured_by_an_edited_function(points, tmp_path, module, n_evaluated):
    module(DISTANCE)
    fitted(points, tmp_path / "run", **MINE, n_evaluated=n_evaluated)
    export_model(str(tmp_path / "run"), str(tmp_path / "model"))
    for name in ("run", "model"):
        extended(tmp_path / name, points, tmp_path / f"{name} extended")
    module(DISTANCE.replace("sum()", "max()"))
    for name in ("run", "model"):
        with pytest.raises(InvalidInputError, match="metric='mine:distance' was edited since the run was fitted"):
            extended(tmp_path / name, points, tmp_path / f"{name} extended again")
    fitted(points, tmp_path / "run", **MINE, n_evaluated=n_evaluated)
    export_model(str(tmp_path / "run"), str(tmp_path / "model"))
    for name in ("run", "model"):
        extended(tmp_path / name, points, tmp_path / f"{name} extended again")
    found, expected = (open_run(tmp_path / f"{name} extended again").embedding() for name in ("model", "run"))
    np.testing.assert_array_equal(found, expected)


def test_a_model_of_a_kernel_places_rows_as_the_run_does(points, tmp_path, module):
    module("def product(a, b):\n    return a @ b\n")
    settings = {**OBJECTS, "method": "kernel-mds", "kernel": "mine:product"}
    fitted(points, tmp_path / "run", **settings)
    export_model(str(tmp_path / "run"), str(tmp_path / "model"))
    for name in ("run", "model"):
        extended(tmp_path / name, points, tmp_path / f"{name} extended")
    whole = open_run(tmp_path / "run").embedding()
    for name in ("run", "model"):
        np.testing.assert_array_equal(open_run(tmp_path / f"{name} extended").embedding(), whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def distance(a, b:\n", r"metric='mine:distance' cannot be imported: SyntaxError: .*mine\.py, line 1\); mend"),
        ("1 / 0\n", "metric='mine:distance' cannot be imported: ZeroDivisionError: division by zero; mend"),
        ("distance = 3\n", "metric='mine:distance' is not a function"),
        (
            "def distance(a, b):\n    return None\n",
            r"gives None for row \d+ and the landmark in row \d+; it must be fin",
        ),
        ("def distance(a, b):\n    return [1]\n", r"gives \[1\] for row \d+ and the landmark in row \d+; it must be"),
        (
            "def distance(a, b):\n    return 1 / 0\n",
            r"fails for row \d+ and the landmark in row \d+: ZeroDivisionError: ",
        ),
        ("def distance(a, b):\n    return -1\n", r"gives -1\.0 for row \d+ and the landmark in row \d+; .* at least 0"),
        ("def distance(a, b):\n    return 1e200\n", r"gives 1e\+200 for row \d+ and .* of a size up to 1e\+150"),
    ],
)
@pytest.mark.parametrize("n_evaluated", [None, 4])
def test_a_function_at_fault_is_named_with_the_objects(points, tmp_path, module, text, message, n_evaluated):
    module(text)
    with pytest.raises(InvalidInputError, match=message):
        fitted(points, tmp_path / "run", **MINE, n_evaluated=n_evaluated)


def test_the_rows_that_are_named_are_those_of_the_objects(points, tmp_path, module):
    """A landmark of the second batch."""
    module(DISTANCE)
    fitted(points, tmp_path / "run", **MINE)
    row, values = int(open_run(tmp_path / "run").landmark_rows[18]), np.load(points)
    one, other = (float(values[place, 0]) for place in (41, row))
    module(f"def distance(a, b):\n    return -1 if (a[0], b[0]) == ({one!r}, {other!r}) else 1\n")
    with pytest.raises(InvalidInputError, match=rf"gives -1\.0 for row 41 and the landmark in row {row};"):
        fitted(points, tmp_path / "again", **MINE)


def test_what_a_crash_left_is_not_called_again(points, tmp_path, module):
    module(DISTANCE)

    class Stopping(Counting):
        def computed(self, ledger, partition):
            super().computed(ledger, partition)
            if ledger.stage == "rows" and partition == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(points, tmp_path / "run", Stopping(), **MINE)
    again = fitted(points, tmp_path / "run", **MINE)
    assert next(partition for path, partition in again.computed_partitions if path.startswith("rows/")) == 6
    assert open_run(tmp_path / "run").stage_figures("rows")["n_evaluations"] == 20 * 60
