"""A small fit that still has several partitions of everything, and ways to look at what it leaves on disk."""

import numpy as np

from pipeline.jobs.extend import extend
from pipeline.jobs.fit import fit
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import ExtendSettings, fit_settings, job_settings
from pipeline.stages.stage import Watch

SETTINGS = {"n_neighbors": 8, "n_landmarks": 70, "partition_mib": 1}


class Counting(Watch):
    """Remembers what was computed."""

    def __init__(self):
        self.computed_partitions = []

    def computed(self, ledger, partition):
        self.computed_partitions.append((ledger.path, partition))

    @property
    def stages(self):
        return list(dict.fromkeys(path.split("/")[0] for path, _ in self.computed_partitions))


def roll_file(folder, n_points=4500, n_columns=64, dtype=np.float64):
    """A Swiss roll turned into many columns, so that a partition of the least size holds only 4,096 rows."""
    path = folder / "roll.npy"
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0]
    np.save(path, (swiss_roll(n_points, seed=0).points @ turned.T).astype(dtype))
    return path


def fitted(source, store, watch=None, **settings):
    """Fit with the small settings, changed by keywords; what was computed."""
    watch = watch or Counting()
    fit(fit_settings({**SETTINGS, **settings, "source": str(source), "store": str(store)}), watch)
    return watch


def extended(store, source, output, watch=None, **settings):
    """Extend a run to a source; what came of it."""
    given = {"store": str(store), "source": str(source), "output": str(output), **settings}
    return extend(job_settings(ExtendSettings, given), watch)


def contents(root):
    """Every file below the root but the lease's, with its bytes."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "lease" not in path.relative_to(root).parts
    }
