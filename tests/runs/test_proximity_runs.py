"""Runs on proximities that are given, and on objects that a function of the user's compares."""

import numpy as np
import pytest
from edit_distance import levenshtein, shared_letters
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist
from small import extended, fitted

from pipeline import open_run
from pipeline.errors import InvalidInputError

N_POINTS = 400


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(N_POINTS, 5)) * [4, 2, 1, 0.5, 0.2]


def saved(path, array):
    np.save(path, array)
    return path


def up_to_sign(reference, coordinates):
    return coordinates * np.sign((reference * coordinates).sum(axis=0))


def test_the_outlier_of_the_paper(tmp_path):
    """[T ex. 2] through fit and extend: the two answers are sqrt 368 apart, and the trust columns say so."""
    squared = np.array([[0, 100, 45, 45], [100, 0, 45, 45], [45, 45, 0, 64], [45, 45, 64, 0]])
    given = saved(tmp_path / "four.npy", np.sqrt(squared))
    fitted(given, tmp_path / "run", method="mds", input="dissimilarities", n_landmarks="auto", n_components=2)
    outlier = saved(tmp_path / "fifth.npy", np.sqrt([[386.0], [386.0], [457.0], [457.0]]))
    extended(tmp_path / "run", outlier, tmp_path / "extension", arc=9, arc_rows=(0,))
    opened = open_run(tmp_path / "extension")
    np.testing.assert_allclose(opened.embedding("projection"), 0, atol=1e-6)
    np.testing.assert_allclose(opened.embedding("restricted"), [[0, np.sqrt(368)]], atol=1e-6)
    assert opened.embedding("gap")[0] == pytest.approx(np.sqrt(368), rel=1e-6)
    assert opened.embedding("residual")[0] == pytest.approx(400, rel=1e-6)
    assert opened.embedding("multiplier")[0] == pytest.approx(-32, rel=1e-6)
    assert opened.embedding("ambiguous")[0]
    assert opened.embedding("residual_rank")[0] == opened.embedding("gap_rank")[0] == 1
    np.testing.assert_allclose(opened.arcs()[1][0][:, 1], np.linspace(0, np.sqrt(368), 9), atol=1e-4)


def test_given_dissimilarities_give_what_vectors_give(points, tmp_path):
    vectors = saved(tmp_path / "points.npy", points)
    square = saved(tmp_path / "square.npy", cdist(points, points))
    for method in ("mds", "laplacian", "lle"):
        settings = {"method": method, "n_landmarks": 50, "landmark_selection": "random"}
        fitted(vectors, tmp_path / method / "vectors", **settings)
        fitted(square, tmp_path / method / "square", **settings, input="dissimilarities")
        one, other = (open_run(tmp_path / method / name) for name in ("vectors", "square"))
        np.testing.assert_array_equal(one.landmark_rows, other.landmark_rows)
        np.testing.assert_allclose(up_to_sign(one.embedding(), other.embedding()), one.embedding(), rtol=0, atol=1e-7)


def test_landmarks_by_points_are_all_that_is_needed(points, tmp_path):
    marks = np.sort(np.random.default_rng(1).choice(N_POINTS, 50, replace=False))[::-1].copy()
    apart = cdist(points, points)
    np.savez(tmp_path / "given.npz", D=apart[marks], which=marks)
    fitted(
        tmp_path / "given.npz",
        tmp_path / "run",
        method="mds",
        input="dissimilarities",
        key="D",
        n_landmarks="auto",
        landmarks_key="which",
    )
    opened = open_run(tmp_path / "run")
    np.testing.assert_array_equal(opened.landmark_rows, marks)
    # Five-dimensional points lie in the landmarks' space: two components are its first two axes.
    centered = points - points[marks].mean(axis=0)
    axes = np.linalg.svd(centered[marks], full_matrices=False)[2][:2]
    expected = centered @ axes.T
    np.testing.assert_allclose(up_to_sign(expected, opened.embedding()), expected, atol=1e-8)
    new = np.random.default_rng(2).normal(size=(7, 5))
    batch = saved(tmp_path / "batch.npy", cdist(points[marks], new))
    extended(tmp_path / "run", batch, tmp_path / "extension")
    placed = (new - points[marks].mean(axis=0)) @ axes.T
    found = open_run(tmp_path / "extension").embedding()
    np.testing.assert_allclose(found * np.sign((expected * opened.embedding()).sum(axis=0)), placed, atol=1e-8)
    with pytest.raises(InvalidInputError, match="it must have 50 rows, one for each landmark"):
        extended(tmp_path / "run", saved(tmp_path / "wrong.npy", np.ones((7, 50))), tmp_path / "wrong")


def test_similarities_are_inner_products_and_may_be_indefinite(points, tmp_path):
    gram = points @ points.T
    given = saved(tmp_path / "gram.npy", gram)
    settings = {"method": "mds", "input": "similarities", "n_landmarks": 50}
    fitted(given, tmp_path / "run", **settings)
    opened = open_run(tmp_path / "run")
    fitted(saved(tmp_path / "points.npy", points), tmp_path / "vectors", method="mds", n_landmarks=50,
           landmark_selection="random")  # fmt: skip
    reference = open_run(tmp_path / "vectors").embedding()
    np.testing.assert_allclose(up_to_sign(reference, opened.embedding()), reference, atol=1e-7)
    # The last two axes count negative: no Euclidean space has such inner products.
    indefinite = (points * [1, 1, 1, -9, -9]) @ points.T
    fitted(saved(tmp_path / "indefinite.npy", indefinite), tmp_path / "indefinite", **settings)
    assert open_run(tmp_path / "indefinite").quality["negative_mass"] > 0.05
    np.savez(tmp_path / "new.npz", S=gram[:, :5] * 2, own=4 * gram.diagonal()[:5])
    with pytest.raises(InvalidInputError, match="name an array of them with own_key"):
        extended(tmp_path / "run", tmp_path / "new.npz", tmp_path / "out", key="S")
    fitted(given, tmp_path / "own", **settings, own_key=str(saved(tmp_path / "own.npy", gram.diagonal())))
    assert open_run(tmp_path / "own").embedding().tobytes() == opened.embedding().tobytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda D: D.__setitem__((3, 5), 9.0), r"not symmetric between landmarks: .*the largest deviation"),
        (lambda D: D.__setitem__((4, 4), 2.0), "nonzero diagonal, 2 at row 4"),
        (lambda D: D.__setitem__((3, 5), -1.0), "negative"),
        (lambda D: D.__setitem__((3, 5), np.nan), "NaN or infinite"),
        (lambda D: D.__imul__(0), "0 everywhere|all zero"),
    ],
)
def test_what_is_no_dissimilarity_is_named_with_its_place(points, tmp_path, spoil, message):
    apart = cdist(points[:30], points[:30])
    spoil(apart)
    with pytest.raises(InvalidInputError, match=message):
        fitted(saved(tmp_path / "d.npy", apart), tmp_path / "run", method="mds", input="dissimilarities",
               n_landmarks="auto")  # fmt: skip


def test_more_neighbors_than_landmarks_are_refused_by_their_name(points, tmp_path):
    given = saved(tmp_path / "d.npy", cdist(points[:60], points[:60]))
    told = {"method": "sammon", "input": "dissimilarities", "n_landmarks": 20}
    with pytest.raises(InvalidInputError, match=r"stress_neighbors=600 is out of range; .* the 20 landmarks"):
        fitted(given, tmp_path / "run", **told, stress_neighbors=600)


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("ACGT"), rng.integers(9, 16))) for _ in range(n)]


@pytest.fixture(scope="module")
def strings(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(texts(300)) + "\n")
    return path


OBJECTS = {"input": "objects", "n_landmarks": 30}


def test_a_function_is_called_once_for_every_landmark_and_row(strings, tmp_path):
    fitted(strings, tmp_path / "run", method="mds", metric="edit_distance:levenshtein", **OBJECTS)
    opened = open_run(tmp_path / "run")
    assert opened.stage_figures("rows")["n_evaluations"] == 30 * 300
    words = texts(300)
    apart = np.array([[levenshtein(a, b) for b in words] for a in words], dtype=float)
    fitted(saved(tmp_path / "d.npy", apart), tmp_path / "given", method="mds", input="dissimilarities", n_landmarks=30,
           landmark_selection="random")  # fmt: skip
    other = open_run(tmp_path / "given")
    assert len(opened.landmark_rows) == len(np.unique([words[row] for row in opened.landmark_rows]))
    np.testing.assert_array_equal(opened.landmark_rows, other.landmark_rows)
    np.testing.assert_allclose(opened.embedding(), other.embedding(), rtol=0, atol=1e-9)
    new = tmp_path / "new.txt"
    new.write_text("\n".join(words[:5] + texts(5, seed=9)) + "\n")
    done = extended(tmp_path / "run", new, tmp_path / "extension")
    assert done.outcomes["rows"].figures["n_evaluations"] == 30 * 10
    assert open_run(tmp_path / "extension").embedding()[:5].tobytes() == opened.embedding()[:5].tobytes()


def test_estimates_from_a_few_evaluations_are_exact_where_the_few_span_all(points, tmp_path):
    """Five-dimensional points by a function: six of them are enough to know all distances."""
    rows = saved(tmp_path / "points.npy", points)
    settings = {"method": "mds", "metric": "edit_distance:apart", **OBJECTS}
    fitted(rows, tmp_path / "all", **settings)
    fitted(rows, tmp_path / "few", **settings, n_evaluated=6)
    whole, few = open_run(tmp_path / "all"), open_run(tmp_path / "few")
    assert few.stage_figures("subset")["n_evaluations"] == 30 * 30
    assert few.stage_figures("rows")["n_evaluations"] == 6 * N_POINTS
    np.testing.assert_allclose(few.embedding(), whole.embedding(), rtol=0, atol=1e-6)
    new = saved(tmp_path / "new.npy", points[:9] + 0.1)
    for name in ("all", "few"):
        extended(tmp_path / name, new, tmp_path / f"{name} extended")
    found, expected = (open_run(tmp_path / f"{name} extended").embedding() for name in ("few", "all"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    with pytest.raises(
        InvalidInputError, match="n_evaluated=31 is out of range; use at most 30, the number of landmarks"
    ):
        fitted(rows, tmp_path / "many", **settings, n_evaluated=31)


def test_a_kernel_of_ones_own(strings, tmp_path):
    fitted(strings, tmp_path / "run", method="kernel-mds", kernel="edit_distance:shared_letters", **OBJECTS)
    opened, words = open_run(tmp_path / "run"), texts(300)
    counts = np.array([[word.count(letter) for letter in "ACGT"] for word in words], dtype=float)
    assert shared_letters(words[0], words[1]) == counts[0] @ counts[1]
    assert opened.stage_figures("rows")["n_evaluations"] == 30 * 300 + 300
    centered = counts - counts[opened.landmark_rows].mean(axis=0)
    axes = np.linalg.svd(centered[opened.landmark_rows], full_matrices=False)[2][:2]
    assert procrustes(centered @ axes.T, opened.embedding())[2] < 1e-6**2
    new = tmp_path / "new.txt"
    new.write_text("\n".join(words[:5]) + "\n")
    extended(tmp_path / "run", new, tmp_path / "extension")
    assert open_run(tmp_path / "extension").embedding().tobytes() == opened.embedding()[:5].tobytes()


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("edit_distance:lopsided", "not symmetric between landmarks"),
        ("edit_distance:nothing", "metric='edit_distance:nothing' cannot be imported"),
        ("no_such_module:distance", "metric='no_such_module:distance' cannot be imported"),
        ("operator:sub", "metric='operator:sub'|unsupported operand"),
    ],
)
def test_a_function_that_is_no_distance_is_refused(strings, tmp_path, metric, message):
    with pytest.raises(Exception, match=message):
        fitted(strings, tmp_path / "run", method="mds", metric=metric, **OBJECTS)
