"""The experiments with data interpolated back from an embedding compute what they say."""

import numpy as np
import pytest
from PIL import Image
from scipy.interpolate import RBFInterpolator
from scipy.spatial.distance import cdist

from benchmarks.papers import closeness, condition_numbers, reconstructions, sphere
from benchmarks.papers.leave_one_out import (
    eigenmap,
    kernel_name,
    kernels_at,
    local_fill_distance,
    mean_errors,
    reconstructed,
)
from pipeline.numerics.inverse.interpolant import CUBIC
from pipeline.numerics.inverse.neighborhood import Kernel


class TestLeaveOneOut:
    def test_eigenmaps_have_the_width_that_is_stated(self, rng):
        """Eigenvectors of the normalized affinities of variance twice the median squared distance, written out."""
        rows = rng.normal(size=(40, 4))
        squares = cdist(rows, rows, "sqeuclidean")
        affinity = np.exp(-squares / (4 * np.median(squares[np.triu_indices(40, 1)])))
        roots = np.sqrt(affinity.sum(axis=1))
        vectors = np.linalg.eigh(affinity / np.outer(roots, roots))[1][:, -2:-5:-1]
        found = eigenmap(rows, 3, "spectral").coordinates
        np.testing.assert_allclose(np.abs((found * vectors).sum(axis=0)), 1, atol=1e-9)

    def test_laplacian_eigenmaps_have_as_many_coordinates_as_asked_for(self, rng):
        assert eigenmap(rng.normal(size=(30, 4)), 3).coordinates.shape == (30, 3)

    def test_each_row_is_interpolated_from_all_others(self, rng):
        points, values = rng.normal(size=(30, 2)), rng.normal(size=(30, 5))
        found = reconstructed(points, values, CUBIC)
        for row in range(30):
            others = np.delete(np.arange(30), row)
            expected = RBFInterpolator(points[others], values[others], kernel="cubic")(points[[row]])
            np.testing.assert_allclose(found[[row]], expected, atol=1e-8)

    def test_scales_are_in_units_of_the_local_fill_distance(self, rng):
        points, values = rng.normal(size=(30, 2)), rng.normal(size=(30, 5))
        apart = cdist(points, points)
        np.fill_diagonal(apart, np.inf)
        spacing = apart.min(axis=1).mean()
        assert local_fill_distance(points) == pytest.approx(spacing)
        weights = np.exp(-((2 * apart / spacing) ** 2))
        expected = weights @ values / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(reconstructed(points, values, Kernel("shepard", scale=2.0)), expected, atol=1e-9)

    def test_the_mean_error_is_that_of_the_paper(self, rng):
        points, values = rng.normal(size=(20, 2)), rng.normal(size=(20, 3))
        kernels = kernels_at((0.5,), (1.0, 2.0))
        expected = [np.linalg.norm(reconstructed(points, values, k) - values, axis=1).mean() for k in kernels]
        assert mean_errors(points, values, kernels) == pytest.approx(expected)
        assert [kernel_name(kernel) for kernel in kernels] == ["cubic", "Gaussian 0.5", "Shepard 1", "Shepard 2"]

    def test_coinciding_points_do_not_count_in_the_fill_distance(self):
        assert local_fill_distance(np.array([[0.0], [0], [1], [3]])) == pytest.approx(1.5)


class TestConditionNumbers:
    def test_points_are_on_the_quadrant(self):
        points = condition_numbers.first_quadrant(50, 7)
        assert points.min() >= 0
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)

    def test_matrices_are_those_of_the_paper(self, rng):
        points = rng.normal(size=(12, 3))
        apart = cdist(points, points)
        gaussian = condition_numbers.interpolation_matrix(points, Kernel("gaussian", scale=0.3))
        np.testing.assert_allclose(gaussian, np.exp(-((0.3 * apart) ** 2)), atol=1e-12)
        np.testing.assert_allclose(condition_numbers.interpolation_matrix(points, CUBIC), apart**3, atol=1e-9)
        found = condition_numbers.condition(points, 0.3)
        assert (found.gaussian, found.cubic) == pytest.approx((np.linalg.cond(gaussian), np.linalg.cond(apart**3)))

    def test_a_flat_gaussian_is_worse_than_the_cubic_and_a_narrow_one_is_not(self):
        points = condition_numbers.first_quadrant(60, 5)
        flat, narrow = condition_numbers.condition(points, 0.01), condition_numbers.condition(points, 10.0)
        assert flat.gaussian > 1e6 * flat.cubic
        assert narrow.gaussian < narrow.cubic
        assert 1 < condition_numbers.reported_condition(points) < 1e8

    def test_both_figures_are_drawn(self, tmp_path):
        points = condition_numbers.first_quadrant(10, 5)
        panel = [condition_numbers.condition(points, scale) for scale in (0.1, 1.0)]
        condition_numbers.draw({5: (panel, panel), 20: (panel, panel)}, tmp_path / "conditions.png")
        with Image.open(tmp_path / "conditions.png") as image:
            assert image.width > 600


class TestSphere:
    def test_points_are_on_a_sphere_of_five_dimensions_in_ten(self):
        points = sphere.sphere(40, 3)
        assert points.shape == (40, 10)
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
        assert np.linalg.matrix_rank(points) == 5

    def test_slopes_are_found(self):
        lengths = [0.1, 0.2, 0.5]
        found = [sphere.SphereError(100, h, (h**2, 3 * h**0.5, h)) for h in lengths]
        assert sphere.slopes(found, "fill_distance") == pytest.approx((2, 0.5, 1))
        assert found[0].of_unit_variance == pytest.approx(1)

    def test_more_points_come_back_closer_and_the_cubic_the_closest(self):
        few, many = sphere.sphere_error(20, 3), sphere.sphere_error(100, 1)
        assert many.fill_distance < few.fill_distance
        assert all(np.array(many.errors) < few.errors)
        assert np.argmin(few.errors) == np.argmin(many.errors) == 0


class TestReconstructions:
    def test_neighboring_pixels_of_noise_of_a_blur_and_of_a_checkerboard(self, rng):
        noise = rng.normal(size=(50, 600))
        assert abs(reconstructions.pixel_correlation(noise, (20, 30))) < 0.02
        assert reconstructions.pixel_correlation(np.ones((2, 12)), (3, 4)) == pytest.approx(1)
        checkerboard = np.indices((4, 6)).sum(axis=0) % 2 * 2.0 - 1
        assert reconstructions.pixel_correlation(checkerboard.reshape(1, -1), (4, 6)) == pytest.approx(-1)

    def test_the_best_kernel_of_each_kind(self):
        errors = np.array([0.3, 0.5, 0.4, 0.6, 0.2, 0.3, 0.4])
        places = [reconstructions.best(errors, reconstructions.DIGIT_KERNELS, kind) for kind in ("gaussian", "shepard")]
        assert places == [2, 4]

    def test_the_papers_rows_have_a_number_for_each_kernel(self):
        for row in reconstructions.PAPER_DIGITS:
            assert len(row) == len(reconstructions.DIGIT_KERNELS)
            assert row[0] == min(row)
        assert len(reconstructions.PAPER_FACES) == len(reconstructions.FACE_KERNELS)

    def test_images_of_unit_norm_come_back_and_are_drawn(self, rng, tmp_path):
        ridge = np.sin(np.linspace(0, 3, 40)[:, None, None] + np.arange(6)[:, None] + 0.5 * np.arange(5)) + 2
        images = reconstructions.embedded(ridge, (6, 5), 2)
        np.testing.assert_allclose(np.linalg.norm(images.rows, axis=1), 1)
        kernels = kernels_at((0.5,), (1.0,))
        left = reconstructions.left_over(images, kernels)
        np.testing.assert_allclose(left.errors, mean_errors(images.points, images.rows, kernels))
        reconstructions.draw(images, kernels, left.errors, tmp_path / "images.png")
        with Image.open(tmp_path / "images.png") as image:
            assert image.width > 600


class TestClosenessPicture:
    def test_it_shows_every_set_of_images(self, rng, tmp_path):
        pictures = closeness.Pictures([rng.normal(size=(7, 4)) for _ in range(3)], (1, 2, 5))
        found = closeness.curves(pictures, closeness.TARGETS["d = h"], "constant")
        names = ("one", "another, 7")
        closeness.draw(dict.fromkeys(names, found), dict.fromkeys(names, pictures), tmp_path / "closeness.png")
        with Image.open(tmp_path / "closeness.png") as image:
            assert image.width > 600

    @pytest.mark.data
    def test_the_printed_inverse_diverges_on_some_sets_and_not_on_others(self, data_folder):
        """Of ten images of a person: far below 0 for the Hamming distance, not for its square root."""
        pictures = closeness.persons("olivetti_64x64")
        assert [len(images) for images in pictures.sets] == [10] * 20
        some = closeness.Pictures(pictures.sets, (8,))
        by_distance = {
            name: closeness.curves(some, closeness.TARGETS[name], "constant") for name in ("d = h", "d = √h")
        }
        assert by_distance["d = h"]["Nyström as printed"].closeness[0] < -1
        assert 0.7 < by_distance["d = √h"]["Nyström as printed"].closeness[0] < 0.85
        assert all(found["semi-least squares"].closeness[0] > 0.98 for found in by_distance.values())

    @pytest.mark.data
    def test_sets_of_frames_have_the_sizes_of_the_papers_sets(self, data_folder):
        frames = closeness.frames(closeness.MANY_IMAGES, closeness.MANY_SIZES)
        assert [images.shape for images in frames.sets] == [(78, 560)] * 20
