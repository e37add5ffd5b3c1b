"""The embedding as a picture."""

import io

import numpy as np
from matplotlib.figure import Figure

from pipeline.runs import Run

MOST_POINTS = 20_000


def embedding_picture(run: Run) -> bytes:
    """A PNG of the first two coordinates of a sample of rows, colored by how far the two answers are apart."""
    coordinates, gaps = run.embedding("projection"), run.embedding("gap")
    embedded = np.flatnonzero(np.isfinite(coordinates[:, 0]))
    shown = np.random.default_rng(0).permutation(embedded)[:MOST_POINTS]
    x = coordinates[shown, 0]
    y = coordinates[shown, 1] if coordinates.shape[1] > 1 else np.zeros_like(x)
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    order = np.argsort(gaps[shown])
    ceiling = float(np.quantile(gaps[shown], 0.99)) or 1.0
    points = axes.scatter(x[order], y[order], c=gaps[shown][order], s=2, cmap="viridis", vmin=0, vmax=ceiling)
    axes.set(aspect="equal", xlabel="component 1", ylabel="component 2", title=_title(run, len(shown)))
    figure.colorbar(points, label="distance between projection and restricted reconstruction")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _title(run: Run, n_shown: int) -> str:
    variance = run.quality["residual_variance"][min(1, len(run.quality["residual_variance"]) - 1)]
    return f"{n_shown:,} of {run.n_rows:,} rows; residual variance {variance:.2g}"
