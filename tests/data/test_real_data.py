"""The estimator and the numerics on real data sets."""

import numpy as np
import pytest
from scipy.spatial import KDTree, procrustes

from pipeline import LandmarkIsomap
from pipeline.errors import ComponentWarning, InvalidInputError, ShortcutWarning
from pipeline.numerics.dimension import dimension_of_points
from pipeline.numerics.extension import project, restricted_reconstruction
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.mds import classical_mds
from pipeline.numerics.statistics import trustworthiness

pytestmark = pytest.mark.data


def test_a_table_of_colors_with_four_fifths_duplicates(data_folder):
    X = np.load(data_folder / "skin245k.npz")["X"]
    with (
        pytest.warns(ComponentWarning, match="5 components"),
        pytest.warns(ShortcutWarning, match="8 likely short circuits"),
    ):
        isomap = LandmarkIsomap(10, 2, n_landmarks=200, random_state=0).fit(X)
    assert len(X) == len(isomap.embedding_) == 244_962
    distinct = collapse_duplicates(X)
    assert len(distinct.first_rows) == 51_433
    assert np.isfinite(isomap.embedding_).all()
    np.testing.assert_array_equal(isomap.embedding_, isomap.embedding_[distinct.first_rows][distinct.node_of])
    assert trustworthiness(X[distinct.first_rows], isomap.embedding_[distinct.first_rows], 10).value > 0.9
    require_sparse_islands(X[distinct.first_rows].astype(np.float64), distinct.node_of, isomap.short_circuits_)


def require_sparse_islands(colors, node_of, listed):
    """That each is a color as lonely as few, whose edge leads to one that is not, with a long way round."""
    fourth = KDTree(colors).query(colors, 5)[0][:, 4]
    rows, others = (node_of[[getattr(item, end) for item in listed]] for end in ("row", "other"))
    assert (fourth[rows] > np.quantile(fourth, 0.99)).all()
    assert (fourth[others] < fourth[rows] / 1.6).all()
    assert all(item.detour > 5 * item.across for item in listed)


def test_faces_unfold_into_pose_and_light(data_folder):
    data = np.load(data_folder / "isomap_faces_32x32.npz")
    isomap = LandmarkIsomap(6, 3, n_landmarks=250, random_state=0).fit(data["X"])
    together = np.column_stack([isomap.embedding_, np.ones(len(data["X"]))])
    fitted = together @ np.linalg.lstsq(together, data["params"], rcond=None)[0]
    r2 = 1 - ((data["params"] - fitted) ** 2).sum(axis=0) / (data["params"] - data["params"].mean(axis=0)).var(
        axis=0
    ) / len(fitted)
    assert (r2 > 0.7).all(), r2


def test_faces_have_three_to_five_dimensions(data_folder):
    """Two angles of the head and one of the light, and how these bend the picture."""
    found = dimension_of_points(np.load(data_folder / "isomap_faces_32x32.npz")["X"], 10)
    assert 3 <= found.two_nearest.value <= 5
    assert 3 <= found.maximum_likelihood.value <= 5


def test_few_landmarks_are_close_to_all_on_faces(data_folder):
    X = np.load(data_folder / "frey_faces.npz")["X"]
    few, all_points = (
        LandmarkIsomap(12, 2, n_landmarks=m, landmark_selection="random", random_state=0).fit_transform(X)
        for m in (400, len(X))
    )
    assert procrustes(all_points, few)[2] < 0.1**2


def test_handwriting_held_out_lands_among_its_own_kind(data_folder):
    """First 6,000 images fitted, 1,000 placed: the nearest fitted image in 10 components mostly has the same label."""
    data = np.load(data_folder / "mnist70k.npz")
    X, y = data["X"][:7000], data["y"][:7000]
    isomap = LandmarkIsomap(10, 10, n_landmarks=400, random_state=0).fit(X[:6000])
    placed = isomap.transform(X[6000:])
    for i in (0, 1, 999):
        np.testing.assert_array_equal(isomap.transform(X[6000 + i : 6001 + i])[0], placed[i])
    nearest = [np.argmin(((isomap.embedding_ - row) ** 2).sum(axis=1)) for row in placed]
    assert (y[:6000][nearest] == y[6000:]).mean() > 0.8


def test_road_distances_between_cities_are_nearly_a_map(data_folder):
    D = np.load(data_folder / "prox_eurodist.npz")["D"]
    model = classical_mds(D**2, 2)
    assert 0 < model.negative_mass < 0.2
    assert model.explained_mass > 0.7
    np.testing.assert_allclose(project(model, D**2), model.coordinates, rtol=1e-9, atol=1e-6)
    assert not restricted_reconstruction(model, D**2).ambiguous.any()


def test_an_asymmetric_confusion_matrix_is_refused_with_its_largest_deviation(data_folder):
    P = np.load(data_folder / "prox_morse2_confusion.npz")["P"]
    dissimilarity = P.max() - P
    np.fill_diagonal(dissimilarity, 0)
    deviation = np.abs(dissimilarity - dissimilarity.T)
    i, j = np.unravel_index(deviation.argmax(), deviation.shape)
    with pytest.raises(
        InvalidInputError, match=rf"not symmetric: .* at \({i}, {j}\) .*largest deviation \({deviation.max():g}\)"
    ):
        classical_mds(dissimilarity, 2)
