"""The papers' experiments compute what they say, on data small enough to know the answer."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap

from benchmarks.papers import closeness, methods_on_digits, out_of_sample_error, two_answers
from benchmarks.papers.closeness import captured_trace
from benchmarks.papers.embedding import edges_of_new, fitted, measured, nearest_columns, studied
from benchmarks.papers.pictures import save
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension import project, restricted_reconstruction
from pipeline.numerics.landmarks.subset import trace_greedy
from pipeline.numerics.mds import classical_mds
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.metrics import Kernel


def up_to_signs(coordinates, reference):
    return coordinates * np.sign((coordinates * reference).sum(axis=0))


def test_isomap_fitted_to_some_rows_and_asked_about_others_is_that_of_scikit_learn():
    rows = swiss_roll(230, seed=0, height=8.0).points
    training, others = np.arange(200), np.arange(200, 230)
    embedding = fitted(replace(studied("isomap", 2), new_edges="own"), measured(rows), training)
    reference = Isomap(n_neighbors=10, n_components=2, eigen_solver="dense").fit(rows[training])
    flipped = up_to_signs(reference.embedding_, embedding.coordinates)
    np.testing.assert_allclose(embedding.coordinates, flipped, atol=1e-6)
    placed = embedding.placed(others)
    np.testing.assert_allclose(placed, up_to_signs(reference.transform(rows[others]), placed), atol=1e-6)


def test_edges_of_new_points_are_those_of_a_graph_with_them(rng):
    """Of one new point at a time: those of the graph on all points in which it and others are each other's nearest."""
    rows = rng.normal(size=(40, 3))
    apart = measured(rows).apart
    new, n_neighbors = np.arange(30, 40), 4
    lengths, ends = edges_of_new(apart[np.ix_(new, np.arange(30))], apart[:30, :30], n_neighbors)
    n_longer = 0
    for point, found, to in zip(new, lengths, ends, strict=True):
        together = np.append(np.arange(30), point)
        between = apart[np.ix_(together, together)] + np.where(np.eye(31), np.inf, 0)
        nearest = nearest_columns(between, n_neighbors)
        expected = set(nearest[30]) | {i for i in range(30) if 30 in nearest[i]}
        assert set(to) == expected
        np.testing.assert_array_equal(found, apart[point, to])
        n_longer += len(expected) > n_neighbors
    assert n_longer >= 5


def test_with_edges_in_both_directions_no_path_is_longer():
    rows = swiss_roll(150, seed=0, height=8.0).points
    embedding = fitted(studied("isomap", 2), measured(rows), np.arange(100))
    fewer = replace(embedding, studied=replace(embedding.studied, new_edges="own"))
    both, own = embedding.to_training(np.arange(100, 150)), fewer.to_training(np.arange(100, 150))
    assert (both <= own).all()
    assert (both < own).any()


def test_with_all_points_in_the_graph_paths_are_those_of_scikit_learn():
    rows = swiss_roll(150, seed=0, height=8.0).points
    embedding = fitted(replace(studied("isomap", 2), new_edges="all"), measured(rows), np.arange(120))
    whole = Isomap(n_neighbors=10).fit(rows).dist_matrix_
    np.testing.assert_allclose(embedding.to_training(np.arange(120, 150)), whole[120:, :120], atol=1e-5)


def test_rows_are_those_that_were_asked_for_in_any_order(rng):
    data = measured(rng.normal(size=(40, 5)))
    training = rng.permutation(40)[:30]
    embedding = fitted(studied("mds", 2), data, training)
    np.testing.assert_allclose(embedding.to_training(training), cdist(data.rows[training], data.rows[training]))
    np.testing.assert_allclose(embedding.placed(training), embedding.coordinates, atol=1e-9)
    assert embedding.spread == pytest.approx(np.sqrt(embedding.coordinates.var(axis=0).sum()))


def test_a_graph_in_pieces_is_joined(rng):
    groups = rng.normal(size=(40, 3)) + np.repeat([[0, 0, 0], [50, 0, 0]], 20, axis=0)
    assert np.isfinite(fitted(studied("isomap", 2), measured(groups), np.arange(40)).between).all()


def test_the_trivial_component_of_spectral_clustering_is_left_out(rng):
    data = measured(rng.normal(size=(30, 4)))
    embedding = fitted(studied("spectral", 2), data, np.arange(25))
    whole = fitted_model(Choice("spectral", 3), embedding.between).coordinates
    assert (whole[:, 0] > 0).all()
    np.testing.assert_array_equal(embedding.coordinates, whole[:, 1:])
    assert embedding.placed(np.arange(25, 30)).shape == (5, 2)


def test_dissimilarities_of_a_kernel(rng):
    rows = rng.normal(size=(10, 4))
    units = rows / np.linalg.norm(rows, axis=1)[:, None]
    np.testing.assert_allclose(measured(rows, Kernel("cosine")).apart, cdist(units, units), atol=1e-7)


def test_of_equally_near_columns_the_first_are_taken():
    np.testing.assert_array_equal(nearest_columns(np.array([[3.0, 1, 1, 0, 1]]), 3), [[3, 1, 2]])


class TestOutOfSampleError:
    @pytest.mark.parametrize("share", [0.0001, 0.01, 0.04, 0.25])
    def test_splits_cover_every_row_once_and_substitute_the_share(self, rng, share):
        kept, first, second = out_of_sample_error.split_rows(698, share, rng)
        np.testing.assert_array_equal(np.sort(np.concatenate([kept, first, second])), np.arange(698))
        assert len(first) == len(second) >= 1
        assert abs(len(first) - share * (len(kept) + len(first))) <= 1

    def test_alignment_undoes_an_affine_map(self, rng):
        points = rng.normal(size=(20, 2))
        moved = points @ [[2, 1], [-1, 0.5]] + [3, -7]
        aligned = out_of_sample_error.aligned(points[:3], points[5:], moved[5:])
        np.testing.assert_allclose(aligned, moved[:3], atol=1e-12)

    def test_nothing_moves_where_two_components_are_all_there_is(self, rng):
        plane = measured(rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)))
        found = out_of_sample_error.errors(studied("mds", 2), plane, 0.2, rng)
        assert max(found) < 1e-10

    def test_error_of_a_point_left_out_by_principal_components(self, rng):
        rows = rng.normal(size=(30, 6)) * [5, 4, 1, 1, 1, 1]
        embedding = fitted(studied("mds", 2), measured(rows), np.arange(30))
        others = np.delete(rows, 7, axis=0)
        axes = np.linalg.svd(others - others.mean(axis=0))[2][:2].T
        scores = np.column_stack([(rows - others.mean(axis=0)) @ axes, np.ones(30)])
        where = np.delete(embedding.coordinates, 7, axis=0)
        affine = np.linalg.lstsq(np.delete(scores, 7, axis=0), where, rcond=None)[0]
        expected = np.linalg.norm(scores[7] @ affine - embedding.coordinates[7])
        assert out_of_sample_error.error_when_left_out(embedding, 7) == pytest.approx(expected, rel=1e-8)
        assert expected > 1e-3

    def test_substituting_more_moves_more(self, rng):
        data = measured(rng.normal(size=(120, 8)) * 0.8 ** np.arange(8))
        few, many = (
            np.mean([out_of_sample_error.errors(studied("mds", 2), data, share, rng, 1)[0] for _ in range(5)])
            for share in (0.02, 0.3)
        )
        assert many > 2 * few

    def test_the_interval_is_students(self, monkeypatch):
        values = iter([0.3, 0.1, 0.5, 0.2])
        monkeypatch.setattr(
            out_of_sample_error, "errors", lambda *_: out_of_sample_error.Errors(next(values), out_of_sample=0.1)
        )
        found = out_of_sample_error.difference(studied("mds", 2), measured(np.eye(3)), 0.1, n_splits=4)
        interval = stats.ttest_1samp([0.2, 0.0, 0.4, 0.1], 0).confidence_interval(0.95)
        assert found.mean == pytest.approx(0.175)
        assert (found.mean - found.margin, found.mean + found.margin) == pytest.approx(interval)

    @pytest.mark.parametrize(
        ("means", "said"),
        [
            ([1, 2, 3, 4, 5, 6, 7], "< 0.3%"),
            ([-1, -1, -1, -1, -1, -1, -1], "> 25%"),
            ([-1, -1, 1, 2, 3, 4, 5], "1.5%"),
            ([-1, 1, 1, -1, 3, 4, 5], "5.0%"),
        ],
    )
    def test_where_a_curve_stays_above_zero(self, means, said):
        curve = [out_of_sample_error.Difference(mean, 0.0) for mean in means]
        assert out_of_sample_error.crossing(curve) == said


@pytest.fixture
def apart(rng):
    """Distances between points in three dimensions."""
    points = rng.normal(size=(14, 3))
    return cdist(points, points)


class TestCloseness:
    @pytest.mark.parametrize("kernel", closeness.KERNELS)
    def test_the_kernel_gives_the_distances_back(self, apart, kernel):
        left_out, exact = closeness.left_out_of(apart, 5, kernel)
        np.testing.assert_array_equal(exact, np.delete(apart[5:6], 5, axis=1))
        squared = left_out.own[:, None] - 2 * left_out.kernel + left_out.gram.diagonal()
        np.testing.assert_allclose(squared, exact**2, atol=1e-12)
        inner = left_out.gram.diagonal()
        others = np.delete(np.delete(apart, 5, axis=0), 5, axis=1)
        np.testing.assert_allclose(inner[:, None] - 2 * left_out.gram + inner, others**2, atol=1e-12)

    def test_a_constant_leaves_no_value_negative(self, apart):
        left_out, _ = closeness.left_out_of(apart, 0, "constant")
        assert left_out.gram.min() == pytest.approx(0, abs=1e-12)

    def test_the_origin_counts_as_a_member(self, apart):
        left_out, _ = closeness.left_out_of(apart, 0, "member")
        chosen = left_out.chosen(3)
        assert len(chosen) == len(set(chosen)) == 3
        assert chosen[0] == left_out.origin
        assert left_out.chosen(1) == [left_out.origin]

    @pytest.mark.parametrize("name", ["semi-least squares", "Nyström"])
    def test_four_members_tell_all_distances_in_three_dimensions(self, apart, name):
        found = closeness.scores(apart, 1, "member", (1, 4))[name]
        assert found[0].min() > 1e-3
        assert found[1].max() < 1e-6

    def test_squares_are_scored_where_they_are_the_target(self, apart):
        found = closeness.scores(apart, 2, "member", (1,), step=5)["semi-least squares"]
        assert found.shape == (1, 3)
        left_out, exact = closeness.left_out_of(apart, 5, "member")
        guess = exact[0, left_out.origin] ** 2 + left_out.gram.diagonal()
        assert found[0, 1] == pytest.approx((np.abs(guess - exact[0] ** 2) / exact[0] ** 2).mean())

    def test_an_approximate_inverse_of_all_members_is_the_inverse(self, apart):
        left_out, _ = closeness.left_out_of(apart, 2, "constant")
        invertible = left_out.gram + 50 * np.eye(13)
        replaced = left_out._replace(gram=invertible)
        beta = np.linalg.solve(invertible, left_out.kernel[0])
        expected = left_out.own - 2 * invertible @ beta + invertible.diagonal()
        found = closeness.by_approximate_inverse(replaced, np.arange(13))
        np.testing.assert_allclose(found[0], expected, rtol=1e-8)

    def test_no_subset_is_better_than_the_best(self, apart):
        gram = closeness.left_out_of(apart, 0, "constant")[0].gram
        best = closeness.best_subset(gram, 2)
        pairs = [captured_trace(gram, [i, j]) for i in range(13) for j in range(i)]
        assert captured_trace(gram, best) == pytest.approx(max(pairs))
        assert captured_trace(gram, best) >= captured_trace(gram, trace_greedy(gram, 2)) - 1e-9

    def test_hamming_counts_pixels_on_different_sides_of_the_mean(self, rng):
        images = rng.integers(0, 256, (4, 30)).astype(float)
        bright = images > images.mean()
        expected = [[np.count_nonzero(a != b) for b in bright] for a in bright]
        np.testing.assert_array_equal(closeness.hamming(images), expected)

    def test_the_score_is_that_of_the_paper(self, rng):
        """[E eq. 31-32] written out, over two sets of different size, with its deviation over sets."""
        sets = [rng.normal(size=(n, 5)) for n in (6, 9)]
        pictures = closeness.Pictures(sets, (2,))
        found = closeness.curves(pictures, closeness.TARGETS["Euclidean"], "constant")["Nyström"]
        means = []
        for images in sets:
            distances = cdist(images, images)
            errors = []
            for i in range(len(images)):
                left_out, exact = closeness.left_out_of(distances, i, "constant")
                guess = np.sqrt(closeness.by_nystrom(left_out, left_out.chosen(2)))
                errors.append((np.abs(guess - exact) / exact).mean())
            means.append(np.mean(errors))
        np.testing.assert_allclose(found.closeness, [1 - np.mean(means)], rtol=1e-9)
        np.testing.assert_allclose(found.deviation, [np.std(means)], rtol=1e-9)


class TestDigits:
    def test_the_first_of_each_label(self):
        labels = np.array([1, 0, 1, 1, 0, 0, 2])
        np.testing.assert_array_equal(methods_on_digits.first_of_each(labels, 2), [1, 4, 0, 2, 6])

    def test_figures_of_groups_in_a_plane(self, rng):
        """Groups that two dimensions hold: no neighbor is a stranger, nothing of the distances is lost."""
        labels = np.tile([0, 1, 2], 20)
        rows = rng.normal(size=(60, 2)) + 30 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
        embedding = fitted(studied("mds", 2), measured(rows), np.arange(45))
        found, placed = methods_on_digits.figures(embedding, labels)
        assert found.accuracy == 1
        assert abs(found.of_training) < 1e-12
        assert abs(found.of_new) < 1e-12
        shift = np.linalg.norm(rows[45:].mean(axis=0) - rows[:45].mean(axis=0)) / embedding.spread
        assert found.shift == pytest.approx(shift)
        np.testing.assert_allclose(cdist(placed, placed), cdist(rows[45:], rows[45:]), atol=1e-10)

    def test_labels_that_say_nothing_are_met_by_chance(self, rng):
        labels = rng.integers(0, 2, 400)
        embedding = fitted(studied("mds", 2), measured(rng.normal(size=(400, 3))), np.arange(200))
        assert 0.3 < methods_on_digits.figures(embedding, labels)[0].accuracy < 0.7

    def test_classical_scaling_is_principal_components(self, rng):
        rows = rng.normal(size=(40, 10)) * 0.7 ** np.arange(10)
        mds = fitted(studied("mds", 2), measured(rows), np.arange(30))
        assert methods_on_digits.distance_from_principal_components(mds) < 1e-10
        metric = fitted(studied("metric-mds", 2), measured(rows), np.arange(30))
        assert methods_on_digits.distance_from_principal_components(metric) > 1e-3

    def test_every_method_is_drawn(self, rng, tmp_path):
        chosen = methods_on_digits.Digits(rng.normal(size=(50, 6)), np.arange(50) % 10, 40)
        found = list(methods_on_digits.embeddings(chosen))
        assert [method for method, _, _ in found].count("isomap") == 3 + len(methods_on_digits.WIDTHS)
        assert {method for method, _, _ in found} == set(methods_on_digits.METHODS)
        others = np.arange(40, 50)
        panels = [methods_on_digits.Panel(m, way, e.coordinates, e.placed(others)) for m, way, e in found]
        methods_on_digits.draw(panels, chosen, tmp_path / "digits.png")
        with Image.open(tmp_path / "digits.png") as image:
            assert image.width > 600


class TestTwoAnswers:
    def test_the_numbers_of_the_paper(self):
        found = {what: numbers for what, _, numbers in two_answers.compared()}
        known = [0, 9 * np.sqrt(1 - 1 / 27**2), np.sqrt(79), np.sqrt(80), np.sqrt(368), 32]
        names = [
            "example 1, projection",
            "example 1, restricted reconstruction as the best line",
            "example 1, restricted reconstruction of inner products",
            "section 6, opposite points together",
            "example 2, restricted reconstruction",
            "example 2, multiplier",
        ]
        for name, value in zip(names, known, strict=True):
            assert abs(found[name][-1]) == pytest.approx(value, abs=1e-8), name

    def test_arcs_lead_from_one_answer_to_the_other(self):
        model = classical_mds(two_answers.FOUR, 2)
        squared = cdist(two_answers.BESIDE_FOUR, two_answers.TETRAHEDRON, "sqeuclidean")
        starts, ends = project(model, squared), restricted_reconstruction(model, squared).coordinates
        np.testing.assert_allclose(starts, two_answers.BESIDE_FOUR[:, :2], atol=1e-10)
        for arc, start, end in zip(two_answers.arcs(), starts, ends, strict=True):
            np.testing.assert_allclose(arc[[0, -1]], [start, end], atol=1e-12)
            assert np.linalg.norm(end) > 2 * np.linalg.norm(start)

    def test_the_points_in_space_are_those_of_the_example(self):
        np.testing.assert_allclose(
            cdist(two_answers.TETRAHEDRON, two_answers.TETRAHEDRON, "sqeuclidean"), two_answers.FOUR
        )
        to_outlier = cdist([[0, 0, 20]], two_answers.TETRAHEDRON, "sqeuclidean")
        np.testing.assert_allclose(to_outlier, [two_answers.ABOVE_FOUR])


def test_a_picture_keeps_its_size_and_colors(tmp_path):
    figure = Figure(figsize=(3, 2), facecolor="#123456")
    save(figure, tmp_path / "picture.png", dpi=50)
    with Image.open(tmp_path / "picture.png") as image:
        assert image.size == (150, 100)
        assert image.convert("RGB").getpixel((1, 1)) == (0x12, 0x34, 0x56)
