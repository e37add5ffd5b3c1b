"""New rows placed together: by which distances, what is published and said, and what is refused."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from edit_distance import levenshtein
from scipy.spatial.distance import cdist
from small import extended, fitted

from flows.batch_reports import batch_report, extension_summary
from pipeline import open_run
from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import joint_restricted_reconstruction
from pipeline.results.export import export
from pipeline.settings import ExtendSettings, job_settings

N_LANDMARKS, BLOCK = 30, 5
MDS = {"method": "mds", "n_landmarks": N_LANDMARKS, "landmark_selection": "random"}
GIVEN = {**MDS, "input": "dissimilarities"}
INNER = {**MDS, "input": "similarities"}


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(200, 4)) * [4, 2, 1, 0.5]


@pytest.fixture(scope="module")
def new():
    """Far from the fitted points; the last row of a block is a copy of its first."""
    rows = 3 * np.random.default_rng(1).normal(size=(12, 4))
    rows[[4, 9]] = rows[[0, 5]]
    return rows


@pytest.fixture(scope="module")
def runs(points, tmp_path_factory):
    """The same points as vectors, as dissimilarities and as inner products."""
    folder = tmp_path_factory.mktemp("runs")
    for name, array, told in (
        ("vectors", points, {**MDS, "diagonal_weight": "balanced"}),
        ("apart", cdist(points, points), {**GIVEN, "diagonal_weight": "balanced"}),
        ("inner", points @ points.T, {**INNER, "diagonal_weight": "balanced"}),
    ):
        fitted(saved(folder / f"{name}.npy", array), folder / name, **told)
    return folder


def saved(path, array):
    np.save(path, array)
    return path


def expected(store, to_landmarks, between, weight):
    """Block by block, by the numerics alone."""
    opened = open_run(store)
    model, unit = opened.model, opened.unit
    blocks = [slice(first, min(first + BLOCK, len(between))) for first in range(0, len(between), BLOCK)]
    answers = [
        joint_restricted_reconstruction(
            model, (to_landmarks[rows] / unit) ** 2, (between[rows, rows] / unit) ** 2, weight
        )
        for rows in blocks
    ]
    coordinates = np.concatenate([answer.coordinates for answer in answers]) * unit
    return coordinates, np.concatenate([answer.certified for answer in answers])


def assert_copies_coincide(joint):
    np.testing.assert_allclose(joint[[4, 9]], joint[[0, 5]], atol=1e-6 * np.abs(joint).max())


def test_vectors_are_apart_by_the_metric(points, new, runs, tmp_path):
    extended(runs / "vectors", saved(tmp_path / "new.npy", new), tmp_path / "out", joint=BLOCK)
    opened, marks = open_run(tmp_path / "out"), points[open_run(runs / "vectors").landmark_rows]
    found, certified = expected(runs / "vectors", cdist(new, marks), cdist(new, new), "balanced")
    size = np.abs(found).max()
    np.testing.assert_allclose(opened.embedding("joint"), found, atol=1e-7 * size)
    np.testing.assert_array_equal(opened.embedding("certified"), certified)
    assert_copies_coincide(opened.embedding("joint"))
    light, _ = expected(runs / "vectors", cdist(new, marks), cdist(new, new), 1.0)
    assert np.abs(light - found).max() > 0.01 * size
    counts = opened.stage_figures("joint")
    assert counts == {"n_blocks": 3, "n_certified": certified[::BLOCK].sum(), "upper_bounds": False}


def test_proximities_between_new_points_are_given(points, new, runs, tmp_path):
    """Beside the matrix or in a file of its own, dissimilarities and inner products, as vectors are placed."""
    extended(runs / "vectors", saved(tmp_path / "new.npy", new), tmp_path / "out", joint=BLOCK)
    reference = open_run(tmp_path / "out").embedding("joint")
    own = (new**2).sum(axis=1)
    np.savez(tmp_path / "apart.npz", D=cdist(points, new), new=cdist(new, new))
    np.savez(tmp_path / "inner.npz", S=points @ new.T, own=own, new=new @ new.T)
    beside = {"apart": {"key": "D"}, "inner": {"key": "S", "own_key": "own"}}
    for name, told in beside.items():
        extended(runs / name, tmp_path / f"{name}.npz", tmp_path / name, **told, joint=BLOCK, between_key="new")
        signs = np.sign((open_run(runs / name).embedding() * open_run(runs / "vectors").embedding()).sum(axis=0))
        found = open_run(tmp_path / name).embedding("joint") * signs
        np.testing.assert_allclose(found, reference, atol=1e-6 * np.abs(reference).max())
        assert_copies_coincide(found)
    files = {"D": cdist(points, new), "B": cdist(new, new)}
    matrix, between = (saved(tmp_path / f"{name}.npy", array) for name, array in files.items())
    extended(runs / "apart", matrix, tmp_path / "files", joint=BLOCK, between_key=str(between))
    one, other = (open_run(tmp_path / name).embedding("joint") for name in ("files", "apart"))
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("n_evaluated", [None, 12])
def test_objects_are_compared_by_the_users_function(points, new, tmp_path, n_evaluated):
    told = {**MDS, "input": "objects", "metric": "edit_distance:apart", "n_evaluated": n_evaluated}
    told.pop("landmark_selection")
    fitted(saved(tmp_path / "points.npy", points), tmp_path / "run", **told)
    extended(tmp_path / "run", saved(tmp_path / "new.npy", new), tmp_path / "out", joint=BLOCK)
    joint = open_run(tmp_path / "out").embedding("joint")
    assert_copies_coincide(joint)
    if n_evaluated is None:
        marks = points[open_run(tmp_path / "run").landmark_rows]
        found, _ = expected(tmp_path / "run", cdist(new, marks), cdist(new, new), 1.0)
        np.testing.assert_allclose(joint, found, atol=1e-6 * np.abs(found).max())


def test_a_kernel_of_the_users_gives_the_distances_that_it_induces(points, new, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "inner_products.py").write_text("def product(a, b):\n    return a @ b\n")
    told = {"method": "kernel-mds", "input": "objects", "n_landmarks": N_LANDMARKS, "kernel": "inner_products:product"}
    fitted(saved(tmp_path / "points.npy", points), tmp_path / "run", **told)
    extended(tmp_path / "run", saved(tmp_path / "new.npy", new), tmp_path / "out", joint=BLOCK)
    marks = points[open_run(tmp_path / "run").landmark_rows]
    found, _ = expected(tmp_path / "run", cdist(new, marks), cdist(new, new), 1.0)
    np.testing.assert_allclose(open_run(tmp_path / "out").embedding("joint"), found, atol=1e-6 * np.abs(found).max())
    with pytest.raises(InvalidInputError, match="similarities give no upper bounds of the distances between new rows"):
        extended(tmp_path / "run", tmp_path / "new.npy", tmp_path / "b", joint=BLOCK, joint_distances="bound")


def test_errors_of_the_users_function_name_both_rows(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "touchy.py").write_text(
        "def apart(a, b):\n    return -1 if a[0] > 90 < b[0] else abs(a - b).sum()\n",
    )
    told = {"method": "mds", "input": "objects", "n_landmarks": 8, "metric": "touchy:apart"}
    fitted(saved(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(20, 2))), tmp_path / "run", **told)
    source = saved(tmp_path / "new.npy", np.array([[1.0, 2], [91, 4], [5, 6], [92, 8]]))
    with pytest.raises(InvalidInputError, match=r"gives -1\.0 for row 3 and row 1; it must be finite and at least 0"):
        extended(tmp_path / "run", source, tmp_path / "out", joint=4)


def test_bounds_are_used_only_if_asked_for_and_said(points, new, runs, tmp_path):
    matrix = saved(tmp_path / "new.npy", cdist(points, new))
    with pytest.raises(
        InvalidInputError, match=r"joint=5 needs the dissimilarities between the new points.*between_key"
    ):
        extended(runs / "apart", matrix, tmp_path / "out", joint=BLOCK)
    assert not (tmp_path / "out").exists()
    for source, run in ((matrix, "apart"), (saved(tmp_path / "rows.npy", new), "vectors")):
        done = extended(runs / run, source, tmp_path / run, joint=BLOCK, joint_distances="bound")
        assert open_run(tmp_path / run).stage_figures("joint")["upper_bounds"]
        said = extension_summary({"batches": [batch_report(str(runs / run), str(tmp_path / run), done)]})
        assert any("upper bounds through the landmarks" in line for line in said)
    extended(runs / "vectors", tmp_path / "rows.npy", tmp_path / "metric", joint=BLOCK)
    report = batch_report(str(runs / "vectors"), str(tmp_path / "metric"))
    said = extension_summary({"batches": [report]})
    assert not any("upper bounds" in line for line in said)
    assert f"3 blocks reconstructed jointly, {report['joint']['n_certified']} of them with a certified" in " ".join(
        said
    )
    with pytest.raises(InvalidInputError, match="name their similarities in between_key"):
        extended(runs / "inner", matrix, tmp_path / "out", joint=BLOCK, joint_distances="bound", own_key="own")


def spoiled(array, entry, value):
    array = array.copy()
    array[entry] = value
    return array


def test_proximities_between_new_points_are_checked_before_anything_is_placed(points, new, runs, tmp_path):
    matrix, between = saved(tmp_path / "new.npy", cdist(points, new)), cdist(new, new)
    for array, message in (
        (between[:, :3], r"has shape \(12, 3\); it must be \(12, 12\), a row and a column for each"),
        (spoiled(between, (6, 8), 9.0), r"not symmetric between new points: .* at row 6, column 8"),
        (spoiled(between, (7, 7), 2.0), "nonzero diagonal, 2 at row 7, column 7; the dissimilarity of a point to its"),
        (spoiled(between, (6, 8), np.nan), "NaN or infinite entries among those looked at, the first nan at row 6"),
        (spoiled(between, (6, 8), -1.0), "1 negative entries among those looked at, the lowest -1 at row 6, column 8"),
    ):
        key = str(saved(tmp_path / "between.npy", array))
        with pytest.raises(InvalidInputError, match=message):
            extended(runs / "apart", matrix, tmp_path / "out", joint=BLOCK, between_key=key)
        assert not (tmp_path / "out" / "place").exists()
    # What no block has is not looked at.
    key = str(saved(tmp_path / "between.npy", spoiled(between, (0, 11), np.nan)))
    extended(runs / "apart", matrix, tmp_path / "fine", joint=BLOCK, between_key=key)
    np.savez(tmp_path / "inner.npz", S=points @ new.T, own=(new**2).sum(axis=1), new=new @ new.T + np.eye(12))
    with pytest.raises(InvalidInputError, match=r"where own_key has .*; both must be the same"):
        extended(
            runs / "inner", tmp_path / "inner.npz", tmp_path / "out", key="S", own_key="own", joint=4, between_key="new"
        )
    with pytest.raises(InvalidInputError, match="between_key='none' cannot be used: 'none' is not an array kept with"):
        extended(
            runs / "inner",
            tmp_path / "inner.npz",
            tmp_path / "out",
            key="S",
            own_key="own",
            joint=4,
            between_key="none",
        )


def test_changed_proximities_between_new_points_are_other_data(points, new, runs, tmp_path):
    matrix = saved(tmp_path / "new.npy", cdist(points, new))
    for factor in (1.0, 1.5):
        key = str(saved(tmp_path / "between.npy", factor * cdist(new, new)))
        done = extended(runs / "apart", matrix, tmp_path / "out", joint=BLOCK, between_key=key)
    assert done.outcomes["place"].n_computed == 0
    assert done.outcomes["joint"].n_computed == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"between_key": "B"}, "between_key='B' goes with joint only"),
        ({"joint": 4, "between_key": "B", "joint_distances": "bound"}, "leave one of them out"),
        ({"joint": 4, "between_key": "b.npy", "incoming": True}, "between_key='b.npy' is one file for all batches"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        job_settings(ExtendSettings, {"store": "run", "source": "x.npy", "output": "out", **given})


def test_distances_that_are_computed_cannot_be_given(new, runs, tmp_path):
    source = saved(tmp_path / "new.npy", new)
    with pytest.raises(InvalidInputError, match="between_key='B' means nothing for the fitted run, of input='vectors'"):
        extended(runs / "vectors", source, tmp_path / "out", joint=4, between_key="B")


def test_the_column_is_exported_beside_the_coordinates(new, runs, tmp_path):
    extended(runs / "vectors", saved(tmp_path / "new.npy", new), tmp_path / "out", joint=BLOCK)
    export(open_run(tmp_path / "out"), ["joint", "certified"], tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    np.testing.assert_array_equal(table["certified"].to_numpy(), open_run(tmp_path / "out").embedding("certified"))


def test_texts_are_compared_with_each_other(tmp_path):
    words = ["".join(letters) for letters in np.random.default_rng(0).choice(list("abcd"), (60, 7))]
    (tmp_path / "words.txt").write_text("\n".join(words))
    told = {"method": "mds", "input": "objects", "n_landmarks": 20, "metric": "edit_distance:levenshtein"}
    fitted(tmp_path / "words.txt", tmp_path / "run", **told)
    fresh = ["aabbccd", "dddd", "aabbccd", "abcdabcdabcd"]
    (tmp_path / "new.txt").write_text("\n".join(fresh))
    extended(tmp_path / "run", tmp_path / "new.txt", tmp_path / "out", joint=BLOCK)
    joint, marks = open_run(tmp_path / "out").embedding("joint"), open_run(tmp_path / "run").landmark_rows
    np.testing.assert_allclose(joint[0], joint[2], atol=1e-6)
    tables = [
        np.array([[levenshtein(a, b) for b in others] for a in fresh]) for others in (np.array(words)[marks], fresh)
    ]
    found, _ = expected(tmp_path / "run", *tables, 1.0)
    np.testing.assert_allclose(joint, found, atol=1e-6 * np.abs(found).max())
