"""Runs on similarities that are given: as inner products, or as affinities."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.manifold import SpectralEmbedding
from small import Counting, extended, fitted

from flows.pictures import embedding_picture
from flows.reports import figures_table, fit_report, fit_summary
from flows.status import history
from pipeline import open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.fit import fit
from pipeline.settings import ExtendSettings, fit_settings, job_settings
from pipeline.sources.inputs import open_input

N_POINTS, N_LANDMARKS, GAMMA = 120, 30, 0.05
INNER = {"method": "mds", "input": "similarities", "n_landmarks": N_LANDMARKS}
AFFINE = {**INNER, "method": "laplacian"}


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(N_POINTS, 4)) * [4, 2, 1, 0.5]


@pytest.fixture(scope="module")
def affinities(points):
    return np.exp(-GAMMA * cdist(points, points) ** 2)


@pytest.fixture(scope="module")
def new():
    return np.random.default_rng(1).normal(size=(N_POINTS, 4)) * [4, 2, 1, 0.5]


@pytest.fixture(scope="module")
def inner(points, tmp_path_factory):
    """A run on inner products of all points."""
    folder = tmp_path_factory.mktemp("inner")
    fitted(saved(folder / "gram.npy", points @ points.T), folder / "run", **INNER)
    return folder / "run"


@pytest.fixture(scope="module")
def affine(affinities, tmp_path_factory):
    """A run on affinities of all points."""
    folder = tmp_path_factory.mktemp("affine")
    fitted(saved(folder / "affinities.npy", affinities), folder / "run", **AFFINE)
    return folder / "run"


def saved(path, array):
    np.save(path, array)
    return path


def up_to_sign(reference, coordinates):
    return coordinates * np.sign((reference * coordinates).sum(axis=0))


def assert_landmarks_stay(store):
    opened = open_run(store)
    coordinates = opened.model.coordinates
    size = np.abs(coordinates).max()
    np.testing.assert_allclose(opened.embedding()[opened.landmark_rows], coordinates, rtol=0, atol=1e-9 * size)


class TestLaplacian:
    def test_is_that_of_the_dissimilarities_and_landmarks_stay(self, points, affine, tmp_path):
        apart = saved(tmp_path / "apart.npy", cdist(points, points))
        told = {**AFFINE, "input": "dissimilarities", "landmark_selection": "random"}
        fitted(apart, tmp_path / "run", **told, gamma=GAMMA)
        expected = open_run(tmp_path / "run").embedding()
        np.testing.assert_allclose(up_to_sign(expected, open_run(affine).embedding()), expected, rtol=0, atol=1e-6)
        assert_landmarks_stay(affine)
        assert_landmarks_stay(tmp_path / "run")

    def test_is_that_of_scikit_learn(self, affinities, tmp_path):
        fitted(saved(tmp_path / "s.npy", affinities), tmp_path / "run", **{**AFFINE, "n_landmarks": N_POINTS})
        expected = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit_transform(affinities)
        found = open_run(tmp_path / "run").embedding()
        np.testing.assert_allclose(up_to_sign(expected, found), expected, rtol=0, atol=1e-6)

    def test_landmarks_in_any_order_are_told_from_other_points(self, affinities, affine, tmp_path):
        marks = open_run(affine).landmark_rows[::-1].copy()
        np.savez(tmp_path / "s.npz", S=affinities[marks], which=marks)
        told = {**AFFINE, "n_landmarks": "auto", "key": "S", "landmarks_key": "which"}
        fitted(tmp_path / "s.npz", tmp_path / "run", **told)
        expected = open_run(affine).embedding()
        found = open_run(tmp_path / "run").embedding()
        np.testing.assert_allclose(up_to_sign(expected, found), expected, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("method", ["laplacian", "lle"])
    def test_rounding_on_a_diagonal_of_dissimilarities_does_not_move_landmarks(self, points, tmp_path, method):
        apart = cdist(points, points)
        told = {"method": method, "input": "dissimilarities", "n_landmarks": N_LANDMARKS}
        fitted(saved(tmp_path / "exact.npy", apart), tmp_path / "exact", **told)
        fitted(saved(tmp_path / "rounded.npy", apart + 1e-6 * np.eye(N_POINTS)), tmp_path / "rounded", **told)
        exact, rounded = (open_run(tmp_path / name).embedding() for name in ("exact", "rounded"))
        np.testing.assert_array_equal(rounded, exact)

    @pytest.mark.parametrize("own", [0.0, 0.3, 5.0])
    def test_landmarks_return_to_themselves_whatever_stands_on_a_diagonal_of_affinities(
        self, affinities, affine, tmp_path, own
    ):
        changed = affinities.copy()
        np.fill_diagonal(changed, own)
        fitted(saved(tmp_path / "s.npy", changed), tmp_path / "run", **AFFINE)
        found, model = open_run(tmp_path / "run"), open_run(affine).model
        np.testing.assert_allclose(found.embedding()[found.landmark_rows], model.coordinates, rtol=0, atol=1e-12)

    def test_new_points_need_no_similarities_to_themselves(self, points, affine, new, tmp_path):
        batch = saved(tmp_path / "new.npy", np.exp(-GAMMA * cdist(points, new) ** 2))
        extended(affine, batch, tmp_path / "out")
        assert np.isfinite(open_run(tmp_path / "out").embedding()).all()
        with pytest.raises(InvalidInputError, match=r"own_key='own' means nothing .*method='laplacian'"):
            extended(affine, batch, tmp_path / "other", own_key="own")


class TestNewPoints:
    def test_as_many_as_were_fitted_have_no_diagonal(self, points, inner, new, tmp_path):
        batch = saved(tmp_path / "new.npy", points @ new.T)
        with pytest.raises(InvalidInputError, match="name an array of them with own_key"):
            extended(inner, batch, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_are_placed_as_vectors_are(self, points, inner, new, tmp_path):
        own = (new**2).sum(axis=1)
        np.savez(tmp_path / "new.npz", S=points @ new.T, own=own)
        extended(inner, tmp_path / "new.npz", tmp_path / "beside", key="S", own_key="own")
        batch, file = saved(tmp_path / "new.npy", points @ new.T), saved(tmp_path / "own.npy", own)
        extended(inner, batch, tmp_path / "apart", own_key=str(file))
        for name in ("points", "rows"):
            saved(tmp_path / f"{name}.npy", points if name == "points" else new)
        told = {"method": "mds", "n_landmarks": N_LANDMARKS, "landmark_selection": "random"}
        fitted(tmp_path / "points.npy", tmp_path / "vectors", **told)
        extended(tmp_path / "vectors", tmp_path / "rows.npy", tmp_path / "out")
        expected = open_run(tmp_path / "out")
        for name in ("beside", "apart"):
            found = open_run(tmp_path / name)
            for answer in ("projection", "restricted"):
                reference = expected.embedding(answer)
                np.testing.assert_allclose(up_to_sign(reference, found.embedding(answer)), reference, atol=1e-7)
            np.testing.assert_allclose(found.embedding("residual"), expected.embedding("residual"), atol=1e-7)

    def test_never_take_the_file_of_the_fit_but_its_name_beside_them(self, points, new, tmp_path):
        gram, own = points @ points.T, (points**2).sum(axis=1)
        given = saved(tmp_path / "gram.npy", gram)
        fitted(given, tmp_path / "file", **INNER, own_key=str(saved(tmp_path / "own.npy", own)))
        batch = saved(tmp_path / "new.npy", points @ new.T)
        with pytest.raises(InvalidInputError, match="name an array of them with own_key"):
            extended(tmp_path / "file", batch, tmp_path / "out")
        np.savez(tmp_path / "gram.npz", S=gram, own=own)
        fitted(tmp_path / "gram.npz", tmp_path / "named", **INNER, key="S", own_key="own")
        np.savez(tmp_path / "new.npz", S=points @ new.T, own=(new**2).sum(axis=1))
        extended(tmp_path / "named", tmp_path / "new.npz", tmp_path / "by name")
        extended(tmp_path / "file", tmp_path / "new.npz", tmp_path / "told", key="S", own_key="own")
        assert open_run(tmp_path / "by name").embedding().tobytes() == open_run(tmp_path / "told").embedding().tobytes()
        with pytest.raises(InvalidInputError, match="own_key='own' cannot be used: 'own' is not an array kept with"):
            extended(tmp_path / "named", batch, tmp_path / "out")

    def test_are_refused_with_similarities_to_themselves_that_are_not_theirs(self, points, inner, new, tmp_path):
        batch = saved(tmp_path / "new.npy", points @ new[:7].T)
        with pytest.raises(InvalidInputError, match=r"own.npy' has 6 entries; .* has 7 points"):
            extended(inner, batch, tmp_path / "out", own_key=str(saved(tmp_path / "own.npy", np.ones(6))))
        spoiled = np.where(np.arange(7) == 3, np.nan, 1.0)
        with pytest.raises(InvalidInputError, match=r"own.npy' is nan for point 3; similarities must be finite"):
            extended(inner, batch, tmp_path / "out", own_key=str(saved(tmp_path / "own.npy", spoiled)))
        told = {"store": "run", "source": "folder", "output": "out", "incoming": True, "own_key": "own.npy"}
        with pytest.raises(InvalidInputError, match=r"own_key='own.npy' is one file for all batches"):
            job_settings(ExtendSettings, told)


def test_rows_of_a_square_matrix_in_another_order_have_their_own_similarities(points, inner, tmp_path):
    gram, order = points @ points.T, np.random.default_rng(3).permutation(N_POINTS)
    np.savez(tmp_path / "turned.npz", S=gram[order], which=order)
    fitted(
        tmp_path / "turned.npz", tmp_path / "turned", **{**INNER, "n_landmarks": "auto"}, key="S", landmarks_key="which"
    )
    fitted(saved(tmp_path / "gram.npy", gram), tmp_path / "run", **{**INNER, "n_landmarks": N_POINTS})
    expected = open_run(tmp_path / "run").embedding()
    found = open_run(tmp_path / "turned").embedding()
    np.testing.assert_allclose(up_to_sign(expected, found), expected, rtol=0, atol=1e-7)


def test_results_follow_the_arrays_kept_with_a_matrix(points, tmp_path):
    marks = np.arange(0, N_POINTS, 4)
    given, own = saved(tmp_path / "s.npy", (points @ points.T)[marks]), (points**2).sum(axis=1)
    files = {"landmarks_key": tmp_path / "which.npy", "own_key": tmp_path / "own.npy"}
    saved(files["landmarks_key"], marks)
    saved(files["own_key"], own)
    told = {**INNER, "n_landmarks": "auto", **{name: str(file) for name, file in files.items()}}
    assert fitted(given, tmp_path / "run", **told).stages[0] == "landmarks"
    assert fitted(given, tmp_path / "run", **told).stages == []
    before = open_run(tmp_path / "run").embedding()
    saved(files["own_key"], own + 1.0)
    assert fitted(given, tmp_path / "run", **told).stages[0] == "model"
    assert np.abs(open_run(tmp_path / "run").embedding("restricted") - before).max() > 0.01
    saved(files["own_key"], own)
    assert fitted(given, tmp_path / "run", **told).stages == []
    # With two landmarks mistaken for each other the matrix is not symmetric, which only who reads it again can tell.
    saved(files["landmarks_key"], marks[np.r_[1, 0, 2 : len(marks)]])
    with pytest.raises(InvalidInputError, match="not symmetric between landmarks"):
        fitted(given, tmp_path / "run", **told)


class TestAffinities:
    def test_have_no_figures_of_distances(self, affine):
        opened = open_run(affine)
        assert opened.arrays == ("projection", "residual", "component")
        assert (opened.quality["residual_variance"], opened.quality["normalized_stress"]) == (None, None)
        assert list(opened.trust) == ["residual"]

    def test_spectral_has_none_either_but_distances_do(self, points, affinities, tmp_path):
        told = {**AFFINE, "method": "spectral"}
        fitted(saved(tmp_path / "s.npy", affinities), tmp_path / "run", **told)
        assert open_run(tmp_path / "run").arrays == ("projection", "residual", "component", "labels")
        fitted(saved(tmp_path / "d.npy", cdist(points, points)), tmp_path / "d", **{**told, "input": "dissimilarities"})
        assert "nearest" in open_run(tmp_path / "d").arrays
        assert len(open_run(tmp_path / "d").quality["residual_variance"]) == 2

    def test_drift_is_told_by_the_residual(self, points, affine, new, tmp_path):
        away = saved(tmp_path / "away.npy", np.exp(-GAMMA * cdist(points, new + 12) ** 2))
        done = extended(affine, away, tmp_path / "batches" / "away.zarr")
        assert list(done.drift["columns"]) == ["residual"]
        assert done.drift["drifts"]
        arrays = open_run(tmp_path / "batches" / "away.zarr").arrays
        assert set(arrays) == {"projection", "residual", "residual_rank", "component"}
        assert history(str(tmp_path / "batches"))[1][1].endswith("drifts")

    def test_reports_and_pictures_do_without(self, affinities, tmp_path):
        told = {**AFFINE, "source": str(saved(tmp_path / "s.npy", affinities)), "store": str(tmp_path / "run")}
        done = fit(fit_settings(told), Counting())
        report = fit_report(open_run(tmp_path / "run"), done)
        assert not any("variance" in line for line in fit_summary(report))
        assert not any("stress" in row["figure"] or "variance" in row["figure"] for row in figures_table(report))
        assert embedding_picture(open_run(tmp_path / "run")).startswith(b"\x89PNG")

    @pytest.mark.parametrize("method", ["laplacian", "spectral"])
    def test_that_are_negative_are_named_with_their_place(self, affinities, tmp_path, method):
        spoiled = affinities.copy()
        spoiled[7, 115] = spoiled[115, 7] = -0.5
        told = {**AFFINE, "method": method, "n_landmarks": N_POINTS}
        message = r"2 negative entries .* -0.5 at row 7 \(landmark\), column 115 .*for affinities, which must be"
        with pytest.raises(InvalidInputError, match=message):
            fitted(saved(tmp_path / "s.npy", spoiled), tmp_path / "run", **told)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (None, r"does not have the similarities of its points to themselves.* own_key"),
        (np.ones(30), r"own.npy' has 30 entries; .* has 120 points"),
        (np.full(120, np.inf), r"own.npy' is inf for point 0"),
    ],
)
def test_own_similarities_are_looked_at_when_opened(points, tmp_path, own, message):
    marks = np.arange(0, N_POINTS, 4)
    np.savez(tmp_path / "s.npz", S=(points @ points.T)[marks], which=marks)
    told = {**INNER, "n_landmarks": "auto", "key": "S", "landmarks_key": "which", "store": "run"}
    told |= {"own_key": None if own is None else str(saved(tmp_path / "own.npy", own))}
    with pytest.raises(InvalidInputError, match=message):
        open_input(fit_settings({**told, "source": str(tmp_path / "s.npz")}))


@pytest.mark.parametrize("extension", ["kernel-mapping", "rbf"])
@pytest.mark.parametrize("method", ["mds", "laplacian", "spectral"])
def test_extensions_by_distances_are_refused(method, extension):
    with pytest.raises(
        InvalidInputError, match=rf"extension='{extension}' places points by distances, and .* use 'pro"
    ):
        fit_settings({**INNER, "method": method, "extension": extension, "source": "s.npy", "store": "run"})
