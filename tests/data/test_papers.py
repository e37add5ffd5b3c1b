"""The papers' experiments on real data: what must hold of them, on a part of each."""

import numpy as np
import pytest

from benchmarks.papers import closeness, methods_on_digits, out_of_sample_error
from benchmarks.papers.embedding import measured

pytestmark = pytest.mark.data

EVERY_SIZE = (*range(1, 13), 15, 20, 25, 30)


@pytest.fixture(scope="module")
def groups(data_folder):
    """Random groups of faces, three images of each left out in turn."""
    return closeness.face_groups()._replace(sizes=EVERY_SIZE, step=26)


@pytest.fixture(scope="module")
def people(data_folder):
    """Ten images of each person, two of them left out in turn."""
    return closeness.persons("olivetti_64x64")._replace(step=5)


@pytest.mark.parametrize("kernel", closeness.KERNELS)
@pytest.mark.parametrize("target", closeness.TARGETS)
def test_ten_faces_tell_the_distances_to_all(groups, target, kernel):
    found = closeness.curves(groups, closeness.TARGETS[target], kernel)
    ours, theirs = found["semi-least squares"].closeness, found["Nyström"].closeness
    assert len(ours) == len(EVERY_SIZE)
    assert ours[EVERY_SIZE.index(10)] > 0.9
    assert (ours >= theirs - 0.005).all(), ours - theirs


@pytest.mark.parametrize("target", closeness.TARGETS)
def test_few_images_of_a_person_tell_the_distances_to_the_others(people, target):
    found = closeness.curves(people, closeness.TARGETS[target], "constant")
    ours, theirs = found["semi-least squares"].closeness, found["Nyström"].closeness
    assert ours[people.sizes.index(5)] > 0.9
    assert (ours >= theirs - 0.005).all(), ours - theirs


@pytest.mark.parametrize("method", out_of_sample_error.PANELS)
def test_placing_a_point_is_safer_than_substituting_a_quarter_of_the_others(data_folder, method):
    """[B fig. 1] at its right end."""
    data = measured(np.load(data_folder / "ionosphere.npz")["X"])
    found = out_of_sample_error.difference(out_of_sample_error.STUDIED[method], data, 0.25, n_splits=5)
    assert found.mean > 0


def test_every_method_places_new_digits_among_their_like(data_folder):
    """A tenth would be chance."""
    chosen = methods_on_digits.digits(40, 10)
    assert len(chosen.labels) == 500
    for method, extension, embedding in methods_on_digits.embeddings(chosen):
        if extension.startswith("kernel-mapping"):
            continue
        found, placed = methods_on_digits.figures(embedding, chosen.labels)
        assert placed.shape == (100, 2)
        assert found.accuracy > 0.2, method
        assert found.of_new - found.of_training < 0.1, method
        if method == "mds":
            assert methods_on_digits.distance_from_principal_components(embedding) < 1e-9
