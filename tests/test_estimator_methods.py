"""Every method of LandmarkIsomap: independent references where every point is a landmark, and the run on disk."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.decomposition import KernelPCA
from sklearn.manifold import Isomap, LocallyLinearEmbedding, SpectralEmbedding
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel

from pipeline import LandmarkIsomap, open_run
from pipeline.errors import ComponentWarning, InvalidInputError
from pipeline.jobs.fit import fit
from pipeline.methods import METHODS, SELECTIONS
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import fit_settings

DIRECT = [name for name in METHODS if not METHODS[name].geodesic]
N_FIT = 140


def up_to_sign(found, expected):
    return found * np.sign((found * expected).sum(axis=0))


def assert_equal_up_to_sign(found, expected, tolerance=1e-6):
    assert found.shape == expected.shape
    np.testing.assert_allclose(up_to_sign(found, expected), expected, rtol=0, atol=tolerance * np.abs(expected).max())


def centered(squared):
    middle = np.eye(len(squared)) - 1 / len(squared)
    return -middle @ squared @ middle / 2


def scaled_vectors(matrix, n_components):
    """Eigenvectors times the roots of their eigenvalues, the largest first."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(eigenvalues, 0)))[:, : -n_components - 1 : -1]


@pytest.fixture(scope="module")
def points():
    """A curved cloud with axes of different lengths, so that no eigenvalue is nearly double."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(N_FIT + 40, 4)) * [3.0, 2.0, 1.2, 0.7]
    return np.column_stack([flat, np.sin(flat[:, 0])]) + 2.0


@pytest.fixture(scope="module")
def all_landmarks(points):
    """Fits of the first points with every one a landmark."""

    def fitted(method, **settings):
        return LandmarkIsomap(method=method, n_landmarks=N_FIT, random_state=0, **settings).fit(points[:N_FIT])

    return fitted


class TestEveryPointALandmark:
    @pytest.mark.parametrize(
        ("kernel", "given", "theirs"),
        [
            ("linear", {}, {"kernel": "linear"}),
            ("rbf", {"gamma": 0.05}, {"kernel": "rbf", "gamma": 0.05}),
            ("cosine", {}, {"kernel": "cosine"}),
            (
                "polynomial",
                {"gamma": 0.1, "degree": 2, "constant": 0.5},
                {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 0.5},
            ),
        ],
    )
    def test_kernel_mds_is_kernel_pca(self, points, all_landmarks, kernel, given, theirs):
        ours = all_landmarks("kernel-mds", n_components=3, kernel=kernel, **given)
        reference = KernelPCA(3, eigen_solver="dense", **theirs).fit(points[:N_FIT])
        assert_equal_up_to_sign(ours.embedding_, reference.transform(points[:N_FIT]))
        assert_equal_up_to_sign(ours.transform(points[N_FIT:]), reference.transform(points[N_FIT:]))
        np.testing.assert_allclose(ours.eigenvalues_, reference.eigenvalues_, rtol=1e-8)

    def test_laplacian_is_spectral_embedding(self, points, all_landmarks):
        theirs = SpectralEmbedding(3, affinity="rbf", gamma=0.05, random_state=0).fit_transform(points[:N_FIT])
        assert_equal_up_to_sign(all_landmarks("laplacian", n_components=3, gamma=0.05).embedding_, theirs)

    def test_lle_is_locally_linear_embedding_and_its_transform(self, points, all_landmarks):
        ours = all_landmarks("lle", n_neighbors=9, regularization=1e-2)
        theirs = LocallyLinearEmbedding(n_neighbors=9, n_components=2, reg=1e-2, eigen_solver="dense")
        assert_equal_up_to_sign(ours.embedding_, theirs.fit_transform(points[:N_FIT]))
        assert_equal_up_to_sign(ours.transform(points[N_FIT:]), theirs.transform(points[N_FIT:]))

    @pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", "cosine", "correlation"])
    def test_mds_is_classical_scaling_of_any_metric(self, points, all_landmarks, metric):
        squared = cdist(points[:N_FIT], points[:N_FIT], metric) ** 2
        assert_equal_up_to_sign(all_landmarks("mds", metric=metric).embedding_, scaled_vectors(centered(squared), 2))

    def test_kernel_isomap_has_the_eigenvectors_of_the_kernel_with_the_added_constant(self, points, all_landmarks):
        """[G eq. 32-34] by brute force on scikit-learn's geodesics."""
        geodesics = Isomap(n_neighbors=8).fit(points[:N_FIT]).dist_matrix_
        of_squares, of_lengths = centered(geodesics**2), centered(geodesics)
        nothing, identity = np.zeros_like(of_squares), np.eye(N_FIT)
        constant = np.linalg.eigvals(np.block([[nothing, 2 * of_squares], [-identity, -4 * of_lengths]])).real.max()
        kernel = of_squares + 2 * constant * of_lengths + constant**2 / 2 * (identity - 1 / N_FIT)
        ours = all_landmarks("kernel-isomap", n_neighbors=8)
        # The constant is that of a defective eigenvalue problem: it is known to fewer digits than it is computed with.
        assert_equal_up_to_sign(ours.embedding_, scaled_vectors(kernel, 2))
        np.testing.assert_allclose(ours.transform(points[:N_FIT]), ours.embedding_)

    def test_spectral_has_the_eigenvectors_and_clusters_of_ng_jordan_and_weiss(self):
        blobs, _ = make_blobs(120, centers=[[0, 0], [6, 0], [0, 9]], random_state=0)
        ours = LandmarkIsomap(method="spectral", n_components=3, n_landmarks=120, gamma=0.3, random_state=0).fit(blobs)
        kernel = rbf_kernel(blobs, gamma=0.3)
        roots = np.sqrt(kernel.sum(axis=1))
        eigenvalues, vectors = np.linalg.eigh(kernel / np.outer(roots, roots))
        expected = vectors[:, :-4:-1]
        np.testing.assert_allclose(ours.eigenvalues_, eigenvalues[:-4:-1], atol=1e-9)
        assert_equal_up_to_sign(ours.embedding_, expected)
        units = expected / np.linalg.norm(expected, axis=1)[:, None]
        assert adjusted_rand_score(ours.labels_, KMeans(3, n_init=10, random_state=0).fit_predict(units)) == 1

    def test_a_radius_is_that_of_scikit_learns_isomap(self, points):
        fitted, new = points[:N_FIT], points[N_FIT:]
        radius = np.sort(cdist(fitted, fitted), axis=1)[:, 3].max()
        new = new[cdist(new, fitted).min(axis=1) < radius]
        ours = LandmarkIsomap(None, radius=radius, n_landmarks=N_FIT, random_state=0).fit(fitted)
        theirs = Isomap(radius=radius, n_neighbors=None).fit(fitted)
        assert_equal_up_to_sign(ours.embedding_, theirs.embedding_)
        assert_equal_up_to_sign(ours.transform(new), theirs.transform(new))


def test_a_row_with_nobody_within_the_radius_takes_the_nearest(points):
    fitted = points[:N_FIT]
    radius = np.sort(cdist(fitted, fitted), axis=1)[:, 3].max()
    isomap = LandmarkIsomap(radius=radius, n_landmarks=N_FIT, random_state=0).fit(fitted)
    away = fitted[[np.argmax(fitted[:, 0])]] + np.array([2 * radius, 0, 0, 0, 0])
    apart = cdist(away, fitted)[0]
    assert apart.min() > radius
    geodesics = Isomap(radius=radius, n_neighbors=None).fit(fitted).dist_matrix_[isomap.landmark_indices_]
    squared = (geodesics[:, apart.argmin()] + apart.min()) ** 2
    landmarks, means = isomap.embedding_[isomap.landmark_indices_], (geodesics**2).mean(axis=1)
    expected = -0.5 * landmarks.T @ (squared - means) / isomap.eigenvalues_
    np.testing.assert_allclose(isomap.transform(away)[0], expected, rtol=1e-9)


@pytest.fixture(scope="module")
def roll(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "roll.npy"
    np.save(path, swiss_roll(600, seed=0).points)
    return path


ON_DISK = [
    *((method, {}) for method in METHODS),
    *(("mds", {"landmark_selection": selection}) for selection in SELECTIONS if selection != "maxmin"),
    ("mds", {"metric": "cityblock", "extension": "restricted", "diagonal_weight": "balanced"}),
    ("kernel-mds", {"kernel": "polynomial", "gamma": 0.01, "degree": 2}),
    ("laplacian", {"gamma": 0.02, "extension": "rbf"}),
    ("lle", {"extension": "kernel-mapping"}),
    ("isomap", {"radius": 4.0}),
]


@pytest.mark.parametrize(("method", "settings"), ON_DISK, ids=lambda value: str(value))
def test_the_embedding_is_that_of_a_run_on_disk(roll, tmp_path, method, settings):
    """On disk the lengths of paths are kept in single precision, in another order of the landmarks."""
    given = {"method": method, "n_neighbors": 8, "n_landmarks": 60, "n_components": 2, **settings}
    fit(fit_settings({**given, "seed": 3, "source": str(roll), "store": str(tmp_path / "run")}))
    run = open_run(tmp_path / "run")
    ours = LandmarkIsomap(**given, random_state=3).fit(np.load(roll))
    np.testing.assert_array_equal(np.sort(run.landmark_rows), np.sort(ours.landmark_indices_))
    expected = run.embedding("restricted" if settings.get("extension") == "restricted" else "projection")
    found = up_to_sign(ours.embedding_, expected) if METHODS[method].geodesic else ours.embedding_
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    if method == "spectral":
        np.testing.assert_array_equal(ours.labels_, run.embedding("labels"))


@pytest.fixture(scope="module")
def fits(points):
    """A fit of each method with few landmarks, made when it is first asked for."""
    made = {}

    def fit_of(method, extension="auto"):
        if (method, extension) not in made:
            estimator = LandmarkIsomap(8, method=method, extension=extension, n_landmarks=30, random_state=0)
            made[method, extension] = estimator.fit(points[:N_FIT])
        return made[method, extension]

    return fit_of


WAYS = [(method, extension) for method in METHODS for extension in METHODS[method].extensions]


@pytest.mark.parametrize(("method", "extension"), WAYS)
def test_training_rows_are_placed_where_they_were_embedded(points, fits, method, extension):
    fitted = fits(method, extension)
    np.testing.assert_array_equal(fitted.transform(points[:N_FIT]), fitted.embedding_)


@pytest.mark.parametrize(("method", "extension"), WAYS)
def test_a_rows_bytes_do_not_depend_on_the_rows_beside_it(points, fits, method, extension):
    fitted, new = fits(method, extension), points[N_FIT:]
    whole = fitted.transform(new)
    assert np.isfinite(whole).all()
    for i in range(0, len(new), 7):
        np.testing.assert_array_equal(fitted.transform(new[i : i + 1])[0], whole[i])
    np.testing.assert_array_equal(fitted.transform(new[::-1]), whole[::-1])


@pytest.mark.parametrize("method", list(METHODS))
def test_the_methods_own_extension_is_the_one_taken(fits, method):
    own = METHODS[method].extensions[0]
    np.testing.assert_array_equal(fits(method).embedding_, fits(method, own).embedding_)


def factor_of_coordinates(method, scale, settings):
    """How coordinates grow with the data."""
    if not METHODS[method].coordinates_are_lengths or settings.get("metric") == "cosine":
        return 1.0
    return 1.0 if method == "kernel-mds" and settings.get("kernel") != "linear" else scale


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((method, {}) for method in METHODS),
        *((method, {"gamma": 0.1}) for method in ("kernel-mds", "laplacian", "spectral")),
        ("kernel-mds", {"kernel": "linear"}),
        ("mds", {"metric": "cosine"}),
        ("isomap", {"radius": 3.0}),
        ("laplacian", {"metric": "cosine", "gamma": 2.0}),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.filterwarnings("ignore::pipeline.errors.ComponentWarning")
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_coordinates_are_in_the_users_units_at_any_scale(points, method, settings, scale):
    """gamma is of squared lengths and the radius a length: both are told in the same units as the data."""
    small = {"n_neighbors": 8, "n_landmarks": 40, "random_state": 0, "method": method}
    plain = LandmarkIsomap(**small, **settings).fit(points[:N_FIT])
    changed = dict(settings)
    if "radius" in settings:
        changed["radius"] = settings["radius"] * scale
    if "gamma" in settings and "metric" not in settings:
        changed["gamma"] = settings["gamma"] / scale**2
    scaled = LandmarkIsomap(**small, **changed).fit(points[:N_FIT] * scale)
    factor = factor_of_coordinates(method, scale, settings)
    for found, expected in (
        (scaled.embedding_, plain.embedding_),
        (scaled.transform(points[N_FIT:] * scale), plain.transform(points[N_FIT:])),
    ):
        np.testing.assert_allclose(found / factor, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    if hasattr(plain, "eigenvalues_"):
        np.testing.assert_allclose(scaled.eigenvalues_ / factor**2, plain.eigenvalues_, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("method", DIRECT)
def test_rows_that_repeat_count_once_and_share_their_results(points, method):
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(60), 3))
    fitted = LandmarkIsomap(7, method=method, n_landmarks=60, random_state=0).fit(points[order])
    assert len(np.unique(order[fitted.landmark_indices_])) == 60
    for row in range(0, 60, 7):
        assert len(np.unique(fitted.embedding_[order == row], axis=0)) == 1


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("method", ["isomap", "mds"])
def test_every_selection_chooses_different_rows_for_every_seed(points, method, selection):
    chosen = [
        LandmarkIsomap(8, method=method, landmark_selection=selection, n_landmarks=20, random_state=seed)
        .fit(points[:N_FIT])
        .landmark_indices_
        for seed in (0, 0, 1)
    ]
    assert len(np.unique(chosen[0])) == 20
    np.testing.assert_array_equal(chosen[0], chosen[1])
    # Greedily by trace there is nothing random where all points are candidates.
    assert (set(chosen[0]) == set(chosen[2])) == (selection == "trace")


def test_a_fit_of_another_method_leaves_nothing_of_the_one_before(points):
    estimator = LandmarkIsomap(8, n_landmarks=30, random_state=0).fit(points[:N_FIT])
    assert hasattr(estimator, "component_labels_")
    estimator.set_params(method="spectral", n_clusters=4).fit(points[:N_FIT])
    assert not hasattr(estimator, "component_labels_")
    assert set(estimator.labels_) == {0, 1, 2, 3}
    estimator.set_params(method="mds", extension="rbf", n_clusters=None).fit(points[:N_FIT])
    assert not hasattr(estimator, "labels_")
    assert not hasattr(estimator, "eigenvalues_")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "umap"}, "method='umap' is not known; use one of 'isomap', 'kernel-isomap', 'mds'"),
        ({"method": "lle", "extension": "projection"}, "extension='projection' does not go with method='lle'; use one"),
        ({"metric": "sqeuclidean"}, r"metric='sqeuclidean' is not known; .*'precomputed', or a function of two rows"),
        (
            {"metric": "cityblock"},
            "does not go with method='isomap', which measures along a graph; use one of 'euclidean', 'cosine', 'angul",
        ),
        (
            {"method": "kernel-mds", "metric": "precomputed"},
            "does not go with method='kernel-mds', which uses a k",
        ),
        ({"kernel": "sigmoid"}, "kernel='sigmoid' is not known; use one of 'linear', 'rbf'"),
        ({"method": "mds", "radius": 2.0}, "radius=2.0 means nothing with method='mds' and metric='euclidean'"),
        ({"method": "mds", "n_init": 3}, "n_init=3 means nothing with method='mds'"),
        ({"method": "sammon", "n_init": 0}, "n_init=0 is out of range"),
        ({"method": "mds", "stress_neighbors": 3}, "stress_neighbors=3 means nothing with method='mds'"),
        ({"gamma": 5.0}, "gamma=5.0 means nothing with method='isomap'"),
        ({"method": "mds", "kernel": "cosine"}, "kernel='cosine' means nothing with method='mds'"),
        ({"method": "kernel-mds", "degree": 7}, "degree=7 means nothing with method='kernel-mds'"),
        ({"regularization": 0.5}, "regularization=0.5 means nothing"),
        ({"radius": -1.0}, "radius=-1.0 is out of range"),
        ({"radius": 1e-9, "component_policy": "error"}, "components, of sizes 1, 1.*Raise radius"),
        ({"method": "laplacian", "gamma": 0}, "gamma=0 is out of range"),
        ({"method": "kernel-mds", "degree": 0}, "degree=0 is out of range"),
        ({"method": "kernel-mds", "constant": -1.0}, "constant=-1.0 is out of range"),
        ({"method": "lle", "regularization": 0}, "regularization=0 is out of range"),
        ({"method": "spectral", "n_clusters": 0}, "n_clusters=0 is out of range"),
        ({"method": "lle", "n_neighbors": 20, "n_landmarks": 20}, "n_neighbors=20 .* 1 to 19 .or more landmarks"),
        ({"method": "mds", "n_landmarks": 41}, r"n_landmarks=41 .* from 3 to 40 \(X has 40 distinct rows\)"),
        ({"method": "mds", "n_components": 5}, r"n_components=5 is more than .* \(n_samples=40, n_features=3\)"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(settings, message):
    data = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(InvalidInputError, match=message):
        LandmarkIsomap(**settings).fit(data)


@pytest.mark.parametrize(("metric", "row", "what"), [("cosine", 0.0, "zeros"), ("correlation", 7.0, "equal entries")])
def test_rows_without_a_direction_are_named(points, metric, row, what):
    data = points[:50].copy()
    data[[31, 44]] = row
    with pytest.raises(InvalidInputError, match=f"X has 2 rows of {what}, first in rows 31, 44; '{metric}'"):
        LandmarkIsomap(method="mds", metric=metric).fit(data)
    fitted = LandmarkIsomap(method="mds", metric=metric, random_state=0).fit(points[:50])
    with pytest.raises(InvalidInputError, match=f"rows of {what}, first in rows 31, 44"):
        fitted.transform(data)


def test_a_radius_that_leaves_pieces_is_bridged_and_says_so(points):
    with pytest.warns(ComponentWarning, match=r"113 components .* 112 links.* radius=3\.\d+ is enough") as told:
        fitted = LandmarkIsomap(radius=0.9, n_landmarks=30, random_state=0).fit(points[:N_FIT])
    enough = float(re.search(r"radius=(\S+)", str(told[0].message)).group(1))
    assert not LandmarkIsomap(radius=enough, n_landmarks=30).fit(points[:N_FIT]).component_labels_.any()
    assert np.isfinite(fitted.embedding_).all()
    np.testing.assert_array_equal(fitted.transform(points[:N_FIT]), fitted.embedding_)
