"""A roll that comes in portions, a run on the first of them, and refits of it."""

import shutil
from types import SimpleNamespace

import numpy as np
from small import fitted

from pipeline import open_run
from pipeline.jobs.refit import STAGES, refit
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import RefitSettings, job_settings
from pipeline.stages.publish import PUBLISHED
from pipeline.store import run

N_OLD, N_NEW = 4500, 1000


def saved(path, rows):
    np.save(path, rows)
    return path


def portions(folder, n_columns=64):
    """Three files of a roll in many columns, so that a partition of the least size holds only 4,096 rows."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0]
    rows = swiss_roll(N_OLD + 2 * N_NEW, seed=0).points @ turned.T
    parts = np.split(rows, [N_OLD, N_OLD + N_NEW])
    files = {
        name: saved(folder / f"{name}.npy", part) for name, part in zip(("old", "new", "newer"), parts, strict=True)
    }
    return SimpleNamespace(rows=rows, folder=folder, **files)


def fitted_portions(folder):
    """The files and a run on the first."""
    roll = portions(folder)
    fitted(roll.old, folder / "run")
    roll.run = folder / "run"
    return roll


def copied(store, place):
    return shutil.copytree(store, place)


def refitted(store, *new, watch=None, execute=None, **settings):
    given = {"store": str(store), "new": [str(path) for path in new], **settings}
    options = {} if execute is None else {"execute": execute}
    return refit(job_settings(RefitSettings, given), watch, **options)


def published(store, version=None):
    """Every array of a version."""
    opened = open_run(store, version)
    return {name: opened.embedding(name).tobytes() for name in PUBLISHED}


def collect(store, keep_versions=None):
    """What `trigpoint gc` does."""
    opened = run.open_store(store, writable=True)
    if keep_versions is not None:
        run.drop_versions(opened, keep_versions)
    paths = run.superseded(opened, STAGES)
    for path in paths:
        run.remove(opened, path)
    return paths
