"""The comparison of two trees: every kind of change is found and put into its group, and nothing else is."""

import copy
from itertools import chain

import numpy as np
import pytest
import zarr

from benchmarks.same_bytes import cases, trees
from benchmarks.same_bytes.compare import differences, report
from benchmarks.same_bytes.data import write_data
from benchmarks.same_bytes.jobs import JOBS
from benchmarks.same_bytes.records import digest_of_array, record_of_store
from pipeline.store.ledger import StageLedger
from pipeline.store.run import create_run

RECORD = {
    "bytes": {"published projection": "aa", "rows/rows-00000000": "bb"},
    "figures": {"rows": {"n_edges": 7, "recall": [0.5, float("nan")]}, "manifest": {"settings": {"seed": 3}}},
    "digests": {"rows": "0123", "rows seal": "4567"},
}


@pytest.fixture
def before():
    """Two cases, one with two jobs."""
    return {"isomap": {"fit": copy.deepcopy(RECORD), "extend": copy.deepcopy(RECORD)}, "mds": {"fit": RECORD}}


@pytest.fixture
def after(before):
    return copy.deepcopy(before)


def found(before, after):
    return [(each.group, each.case, each.job, each.what) for each in differences(before, after)]


def test_the_same_is_said_in_one_line(before, after):
    assert report(before, after) == (["2 cases, 6 arrays: the same"], 0)


def test_a_changed_array_is_found(before, after):
    after["isomap"]["extend"]["bytes"]["rows/rows-00000000"] = "cc"
    assert found(before, after) == [("bytes", "isomap", "extend", "rows/rows-00000000")]
    lines, code = report(before, after)
    assert lines == ["Published bytes: 1 differences", '  isomap | extend | rows/rows-00000000: "bb" -> "cc"']
    assert code == 1


def test_a_changed_figure_is_found_and_shown(before, after):
    after["mds"]["fit"]["figures"]["rows"]["recall"][0] = 0.25
    lines, code = report(before, after)
    assert lines == ["Figures: 1 differences", "  mds | fit | rows: recall.0 0.5 -> 0.25"]
    assert code == 1


def test_changed_digests_alone_are_listed_and_no_failure(before, after):
    after["mds"]["fit"]["digests"]["rows"] = "89ab"
    lines, code = report(before, after)
    assert lines == ["Stage digests: 1 differences", '  mds | fit | rows: "0123" -> "89ab"']
    assert code == 0


@pytest.mark.parametrize("group", ["bytes", "figures", "digests"])
def test_what_only_one_tree_has_is_found(before, after, group):
    what = sorted(RECORD[group])[0]
    del after["mds"]["fit"][group][what]
    assert found(before, after) == found(after, before) == [(group, "mds", "fit", what)]


def test_a_case_or_job_that_only_one_tree_has_is_found(before, after):
    del after["mds"], after["isomap"]["extend"]
    expected = [("bytes", "isomap", "extend", "job"), ("bytes", "mds", "all", "case")]
    assert found(before, after) == found(after, before) == expected
    assert report(before, after)[1] == 1


def test_an_error_in_one_tree_is_a_difference_and_in_both_is_skipped(before, after):
    after["mds"]["fit"] = {"error": "ValueError: no"}
    assert found(before, after) == [("bytes", "mds", "fit", "raises in the newer tree only")]
    assert report(before, after)[1] == report(after, before)[1] == 1
    before["mds"]["fit"] = {"error": "ValueError: not"}
    lines, code = report(before, after)
    skipped = ["Skipped, since both trees raise: 1 jobs", "  mds | fit: ValueError: no"]
    assert (lines, code) == ([*skipped, "2 cases, 4 arrays: the same"], 0)


def test_type_and_shape_count_as_much_as_values():
    zeros = np.zeros((2, 3))
    others = [zeros.reshape(3, 2), zeros.astype(np.int64), -zeros, np.zeros((2, 3), np.float32)]
    assert digest_of_array(zeros.T) == digest_of_array(np.zeros((3, 2)))
    assert len({digest_of_array(array) for array in (zeros, *others)}) == 5


@pytest.mark.parametrize(
    "array", [np.zeros((9, 0)), np.arange(9) % 2 == 0, np.random.default_rng(0).normal(size=(9, 2))]
)
def test_arrays_of_a_store_are_read_as_zarr_reads_them(tmp_path, monkeypatch, array):
    ledger = StageLedger(create_run(tmp_path / "run"), "rows", "0" * 20)
    ledger.create("values", array.shape, array.dtype, 4).write(0, array)
    ledger.write("whole", array)
    ledger.commit({0: ({"n": 1}, ["whole"])})
    ledger.finish(1, {"n": 9}, ["values"])
    published = {"stages": {"rows": {"digest": "0" * 20, "seal": "s"}}, "settings": {"store": str(tmp_path)}}
    opened = type("Opened", (), {"manifest": published, "kind": "model"})
    monkeypatch.setattr(trees, "open_run", lambda *_: opened)
    record = record_of_store(tmp_path / "run", tmp_path)
    stored = {name: zarr.open_array(tmp_path / "run/rows" / ("0" * 20) / name)[...] for name in ("values", "whole")}
    assert record["bytes"] == {f"rows/{name}": digest_of_array(values) for name, values in stored.items()}
    assert record["bytes"]["rows/values"] == digest_of_array(array)
    manifest = {"settings": {"store": "<work>"}}
    assert record["figures"] == {"manifest": manifest, "rows": {"n": 9}, "rows partition-00000000": {"n": 1}}
    assert record["digests"] == {"rows": "0" * 20, "rows seal": "s"}


def test_every_method_input_and_extension_is_a_case_and_every_file_and_job_exists(tmp_path):
    methods = trees.methods()
    listed = cases.run_cases(methods)
    names = [case.name for case in listed]
    assert len(set(names)) == len(names)
    for name, method in methods.items():
        for given in method.inputs:
            own = [case for case in listed if case.name.startswith(f"{name} {given} ")]
            left_out = 2 if given == "similarities" else 0
            assert len(own) == len(method.extensions) - left_out
    assert {job for case in listed for job in case.jobs} == set(JOBS)
    write_data(tmp_path / "data")
    there = {path.name for path in (tmp_path / "data").iterdir()}
    files = [(case.files.source, case.files.new, case.files.empty, case.files.more) for case in listed]
    studied = [source for source, _ in cases.study_cases(methods).values()]
    assert {*chain.from_iterable(files), *studied} - {""} <= there


def test_every_entry_point_is_found():
    for name in trees.HOMES:
        assert callable(trees.found(name)) or name == "METHODS"
