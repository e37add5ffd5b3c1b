"""Runs with the column `spread`: fitted, extended, exported as a model and refitted; and what it leaves as it was."""

import numpy as np
import pytest
from rolls import refitted
from scipy.stats import spearmanr
from small import Counting, contents, extended, fitted, roll_file

from pipeline import open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.portable import export_model
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension.placement import answers_of
from pipeline.numerics.registration import rigid_motion
from pipeline.settings import fit_settings


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return roll_file(tmp_path_factory.mktemp("roll"))


@pytest.fixture(scope="module")
def runs(source, tmp_path_factory):
    """The same run without the spread and with it."""
    folder = tmp_path_factory.mktemp("runs")
    fitted(source, folder / "without")
    fitted(source, folder / "with", spread=True)
    return folder / "without", folder / "with"


def arrays_of(store):
    opened = open_run(store)
    return {name: opened.embedding(name) for name in opened.arrays}


def test_leaves_everything_else_as_it_is(runs):
    without, with_it = (arrays_of(store) for store in runs)
    assert set(with_it) - set(without) == {"spread"}
    for name, values in without.items():
        assert values.tobytes() == with_it[name].tobytes(), name
    assert "spread" not in open_run(runs[0]).manifest["settings"]
    assert open_run(runs[1]).manifest["settings"]["spread"] is True


def test_only_embed_and_what_follows_are_computed_again(source, runs, tmp_path):
    fitted(source, tmp_path / "run")
    watch = fitted(source, tmp_path / "run", Counting(), spread=True)
    assert watch.stages == ["embed", "calibrate", "pairs", "evaluate", "publish"]
    watch = fitted(source, tmp_path / "run", Counting())
    assert watch.stages == []


def test_is_in_the_units_of_the_data_and_has_quantiles(runs):
    opened = open_run(runs[1])
    values = opened.embedding("spread")
    assert (values > 0).all()
    assert np.median(values) < 0.05 * np.abs(opened.embedding()).max()
    assert opened.trust["spread"]["0.5"] == pytest.approx(np.median(values), rel=0.02)
    assert set(opened.calibration) == {"residual", "multiplier", "gap", "spread", "nearest"}


@pytest.mark.parametrize("method", ["isomap", "kernel-isomap", "mds", "kernel-mds"])
def test_scales_with_the_data(tmp_path, method):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 5))
    gamma = {"kernel": "linear"} if method == "kernel-mds" else {}
    found = []
    for factor in (1.0, 1024.0):
        np.save(tmp_path / f"{factor}.npy", factor * points)
        store = tmp_path / f"run{factor}"
        fitted(tmp_path / f"{factor}.npy", store, method=method, n_landmarks=40, spread=True, **gamma)
        found.append(open_run(store).embedding("spread"))
    np.testing.assert_allclose(found[1], 1024 * found[0], rtol=1e-9)


def test_counts_what_landmarks_weigh(tmp_path):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 5)) * (1 + 3 * rng.random((500, 1)))
    np.save(tmp_path / "points.npy", points)
    fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", landmark_weights="counts", spread=True)
    opened = open_run(tmp_path / "run")
    lengths = np.linalg.norm(points[:, None] - points[opened.landmark_rows], axis=2)
    assert opened.model.weights is not None
    expected = opened.unit * answers_of(opened.model, spread=True).of(lengths / opened.unit).trust[:, 3]
    np.testing.assert_allclose(opened.embedding("spread"), expected, rtol=1e-6)


def test_bytes_do_not_depend_on_partitions(source, runs, tmp_path):
    fitted(source, tmp_path / "run", spread=True, partition_mib=4)
    whole, parts = open_run(tmp_path / "run"), open_run(runs[1])
    assert whole.embedding("spread").tobytes() == parts.embedding("spread").tobytes()


class TestNewRows:
    def test_get_it_with_its_rank(self, source, runs, tmp_path):
        """A fitted row gets its own to the bit; far away the misfits are larger."""
        rows = np.load(source)[:200]
        np.save(tmp_path / "new.npy", np.concatenate([rows, rows + 40 * np.eye(64)[0]]))
        extended(runs[1], tmp_path / "new.npy", tmp_path / "out")
        out = open_run(tmp_path / "out")
        spread, rank = out.embedding("spread"), out.embedding("spread_rank")
        assert spread[:200].tobytes() == open_run(runs[1]).embedding("spread", 0, 200).tobytes()
        assert (rank[200:] == 1).mean() > 0.9
        reference = open_run(runs[1]).calibration_values["spread"]
        assert rank[0] == np.searchsorted(reference, spread[0], side="right") / len(reference)

    def test_are_tested_for_drift_by_the_same_columns(self, source, runs, tmp_path):
        for name, store in zip(("without", "with"), runs, strict=True):
            extended(store, source, tmp_path / name)
        assert open_run(tmp_path / "with").drift == open_run(tmp_path / "without").drift
        assert "spread" not in open_run(tmp_path / "without").arrays

    def test_rank_by_their_true_errors(self, tmp_path):
        """3,000 fitted rows of a noisy roll and 1,000 new ones: k = 15, m = 200, noise .1."""
        roll = swiss_roll(4000, seed=1)
        points = roll.points + 0.1 * np.random.default_rng(101).normal(size=roll.points.shape)
        np.save(tmp_path / "old.npy", points[:3000])
        np.save(tmp_path / "new.npy", points[3000:])
        fitted(tmp_path / "old.npy", tmp_path / "run", n_neighbors=15, n_landmarks=200, spread=True)
        extended(tmp_path / "run", tmp_path / "new.npy", tmp_path / "out")
        motion = rigid_motion(open_run(tmp_path / "run").embedding(), roll.sheet[:3000])
        out = open_run(tmp_path / "out")
        errors = np.linalg.norm(motion.apply(out.embedding()) - roll.sheet[3000:], axis=1)
        assert spearmanr(out.embedding("spread"), errors)[0] >= 0.5

    def test_of_a_model_get_it_too(self, source, runs, tmp_path):
        export_model(str(runs[1]), str(tmp_path / "model"), anchors=1000)
        np.save(tmp_path / "new.npy", np.load(source)[:300])
        extended(tmp_path / "model", tmp_path / "new.npy", tmp_path / "out")
        found, own = open_run(tmp_path / "out").embedding("spread"), open_run(runs[1]).embedding("spread", 0, 300)
        assert np.median(np.abs(found / own - 1)) < 0.2
        assert np.isfinite(open_run(tmp_path / "out").embedding("spread_rank")).all()

    def test_of_a_model_without_thinning_get_that_of_the_run(self, source, runs, tmp_path):
        export_model(str(runs[1]), str(tmp_path / "model"), anchors=4500)
        np.save(tmp_path / "new.npy", np.load(source)[:300])
        extended(tmp_path / "model", tmp_path / "new.npy", tmp_path / "out")
        own = open_run(runs[1]).embedding("spread", 0, 300)
        np.testing.assert_allclose(open_run(tmp_path / "out").embedding("spread"), own, rtol=1e-5)


def test_a_refit_keeps_it(source, tmp_path):
    points = np.load(source)
    np.save(tmp_path / "old.npy", points[:4200])
    np.save(tmp_path / "new.npy", points[4200:])
    fitted(tmp_path / "old.npy", tmp_path / "run", spread=True)
    refitted(tmp_path / "run", tmp_path / "new.npy")
    assert np.isfinite(open_run(tmp_path / "run").embedding("spread")).all()


class TestBadInput:
    @pytest.mark.parametrize(
        "settings", [{"method": "lle"}, {"method": "sammon"}, {"method": "mds", "extension": "kernel-mapping"}]
    )
    def test_other_methods_and_extensions_have_none(self, source, tmp_path, settings):
        with pytest.raises(InvalidInputError, match=r"spread=True goes with isomap, .* not with method="):
            fitted(source, tmp_path / "run", spread=True, **settings)
        assert not (tmp_path / "run").exists()

    def test_too_few_landmarks_are_refused_before_anything_runs(self, source, tmp_path):
        with pytest.raises(InvalidInputError, match=r"n_landmarks=3 is out of range; use one from 4 .* spread by 2"):
            fitted(source, tmp_path / "run", spread=True, n_landmarks=3)
        assert not list(contents(tmp_path))

    def test_it_is_no_number(self):
        with pytest.raises(InvalidInputError, match="spread"):
            fit_settings({"source": "x.npy", "store": "run", "spread": 3})
