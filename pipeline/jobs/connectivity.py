"""Whether the neighbor graph of all rows is in one piece, which a sample cannot tell: there neighbors are farther."""

import tempfile
from typing import NamedTuple

from pipeline.jobs.fit import fit_costs
from pipeline.jobs.measured import joined_rows
from pipeline.jobs.plan import cores, planned
from pipeline.settings import FitSettings
from pipeline.sources.inputs import AnySource, as_table
from pipeline.stages.stage import Execute, Outcome, Stage, run_stage
from pipeline.store import lease, run

# What a check may be planned to take.
MOST_SECONDS = 120.0


class Connectivity(NamedTuple):
    """How many components the graph of all rows has with so many neighbors; None if that was not checked, which would
    take so many seconds."""

    n_neighbors: int
    n_components: int | None
    seconds: float


def connectivity(settings: FitSettings, source: AnySource, execute: Execute) -> Connectivity:
    """Run the stages of a fit up to its graph, in a folder that is deleted then, unless they take long."""
    costs = fit_costs(settings, source)
    names = list(costs)
    until_graph = {name: costs[name] for name in names[: names.index("graph") + 1]}
    # As planned for this machine, whatever the fit is to run on.
    here = settings.cluster.model_copy(update={"kind": "auto", "n_workers": cores(), "threads_per_worker": 1})
    seconds = sum(planned(until_graph, here, settings.store).seconds.values())
    if seconds > MOST_SECONDS:
        return Connectivity(settings.n_neighbors, None, seconds)
    with tempfile.TemporaryDirectory(prefix="trigpoint-study-") as folder:
        with lease.acquire(run.create_run(f"{folder}/graph.zarr")) as held:

            def done(stage: Stage) -> Outcome:
                return run_stage(held, stage, execute)

            graph = joined_rows(settings, as_table(source), done).graph
        return Connectivity(settings.n_neighbors, int(graph.figures["n_components"]), seconds)
