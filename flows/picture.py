"""The embedding as a picture."""

import io

import numpy as np
from matplotlib.figure import Figure

from pipeline.results.run import Run


def embedding_picture(run: Run) -> bytes:
    """A PNG of the first two coordinates of the run's sample, colored by how far the two answers are apart, if the
    method has two."""
    projection, *others = run.sample
    gaps = np.linalg.norm(projection - others[0], axis=1) if others else np.zeros(len(projection))
    order = np.argsort(gaps, kind="stable")
    x = projection[order, 0]
    y = projection[order, 1] if projection.shape[1] > 1 else np.zeros_like(x)
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    # A few far ones would leave all others in one color.
    ceiling = float(np.quantile(gaps, 0.99)) or 1.0
    points = axes.scatter(x, y, c=gaps[order], s=4, cmap="viridis", vmin=0, vmax=ceiling)
    axes.set(aspect="equal", xlabel="component 1", ylabel="component 2", title=_title(run, len(x)))
    if others:
        label = "distance between projection and restricted reconstruction"
        figure.colorbar(points, label=label, location="bottom", shrink=0.6, aspect=40)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _title(run: Run, n_shown: int) -> str:
    shown, variances = f"{n_shown:,} of {run.n_rows:,} rows", run.quality["residual_variance"]
    if variances is None:
        return shown
    return f"{shown}; residual variance {variances[-1]:.2g} in {len(variances)} components"
