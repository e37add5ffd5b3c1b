"""The command `trigpoint`. Heavy imports stand inside the commands, so that --help answers at once."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.options import takes_settings
from flows.terminal import resumable, run_command
from pipeline.errors import InvalidInputError
from pipeline.settings import ExtendSettings, FitSettings, InvertSettings, RefitSettings, StudySettings

app = typer.Typer(
    name="trigpoint",
    help="Landmark Isomap and its relatives for datasets too big to embed any other way.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Store = Annotated[str, typer.Argument(help="Folder of the run.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the folder from a run elsewhere that is known to be gone.")
]
Anyway = Annotated[bool, typer.Option("--anyway", help="Run also what the plan says does not fit.")]
Picture = Annotated[Path | None, typer.Option(help="Draw the embedding into this file (PNG).")]
StudyPicture = Annotated[Path | None, typer.Option(help="Draw errors and times into this file (PNG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs to read.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trigpoint {version('trigpoint')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
@takes_settings(FitSettings, "source")
def fit(
    settings: FitSettings,
    take_over: TakeOver = False,
    anyway: Anyway = False,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Embed a dataset on disk, with bounded memory. Killed, it goes on where it stopped when run again."""
    _require_png(picture)
    from flows import runner

    with resumable():
        runner.run_job(runner.FitJob(settings), take_over, as_json, typer.echo, anyway)
        runner.draw_embedding(settings.store, picture, runner.aside(as_json, typer.echo))


@app.command()
@takes_settings(ExtendSettings, "store", "source")
def extend(
    settings: ExtendSettings,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit code 3 if the new rows are not like the fitted ones.")
    ] = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Place new rows in the space of a fitted run, and say whether they are like the rows that it was fitted on."""
    from flows.runner import run_extend

    with resumable():
        run_extend(settings, take_over, fail_on_drift, as_json, typer.echo)


@app.command()
@takes_settings(RefitSettings, "store")
def refit(
    settings: RefitSettings,
    take_over: TakeOver = False,
    anyway: Anyway = False,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Fit a run again with new data, turn it onto the published coordinates and publish it as the next version."""
    _require_png(picture)
    from flows import runner

    with resumable():
        runner.run_job(runner.RefitJob(settings), take_over, as_json, typer.echo, anyway)
        runner.draw_embedding(settings.store, picture, runner.aside(as_json, typer.echo))


@app.command()
@takes_settings(FitSettings, "source")
def plan(settings: FitSettings, as_json: AsJson = False) -> None:
    """Say what a fit will take: tasks, memory, disk and time of each stage. Exit code 2 if it does not fit."""
    from flows.reports import plan_report
    from flows.runner import FitJob

    plan = FitJob(settings).plan
    _print(*plan_report(plan), as_json)
    plan.require_feasible()


@app.command()
@takes_settings(StudySettings, "source")
def study(settings: StudySettings, picture: StudyPicture = None, as_json: AsJson = False) -> None:
    """Try choices and numbers of landmarks and neighbors on a sample: error against cost, and what to fit with."""
    _require_png(picture)
    from flows.study import study_report

    # On the error stream: what is printed is the report alone.
    _print(*study_report(settings, picture, lambda line: typer.echo(line, err=True)), as_json)


@app.command()
def status(store: Store, as_json: AsJson = False) -> None:
    """How far a run is, stage by stage; of a folder of batches, how each compares with the fitted rows."""
    from flows.status import history, status_report

    _print(*(history(store) or status_report(store)), as_json)


@app.command()
def verify(store: Store, as_json: AsJson = False) -> None:
    """Read every chunk and object of a run and compare it with its checksum; exit code 1 if any is damaged."""
    from pipeline.results.run import open_run

    problems = open_run(store).damaged()
    _print({"damaged": problems}, [*problems, f"{len(problems) or 'Nothing is'} damaged."], as_json)
    raise typer.Exit(1 if problems else 0)


@app.command()
def gc(
    store: Store,
    keep_versions: Annotated[
        int | None, typer.Option(min=1, help="Drop all but so many of the newest versions; never the published one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete results that earlier settings left behind, and old versions if told to."""
    from flows.status import collected_garbage

    _print(*collected_garbage(store, keep_versions), as_json)


@app.command()
def export(
    store: Store,
    output: Annotated[Path | None, typer.Option(help="File to write: .npy, .parquet or .csv.")] = None,
    array: Annotated[list[str] | None, typer.Option(help="Array to write; repeat for several in a table.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder for a small model that `extend` takes instead.")] = None,
    anchors: Annotated[int | None, typer.Option(help="Points that the model keeps [20000, or all].")] = None,
    as_json: AsJson = False,
    version: Annotated[str | None, typer.Option(help="Version to write, if not the published one.")] = None,
) -> None:
    """Write published results, rows in the order of the source, with the id column if there is one; or a model."""
    from flows.status import export_model_report, export_report

    if model is not None and output is None and array is None and version is None:
        with resumable():
            _print(*export_model_report(store, str(model), anchors), as_json)
    elif output is not None and model is None and anchors is None:
        _print(*export_report(store, array or ["projection"], output, version), as_json)
    else:
        raise InvalidInputError(
            "give either --output FILE, with --array and --version if wanted, for results; or --model DIR, with "
            "--anchors if wanted, for a model of what is published."
        )


@app.command()
@takes_settings(InvertSettings, "store", "coordinates")
def invert(
    settings: InvertSettings,
    take_over: TakeOver = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the images of a path into this file (PNG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Go back from coordinates in the space of a run to data; or say how well its own data comes back."""
    _require_png(picture)
    from flows.runner import run_invert

    with resumable():
        run_invert(settings, take_over, picture, as_json, typer.echo)


@app.command()
def deploy(
    config: Annotated[Path, typer.Option("--config", help="TOML file with the settings of the flows and [schedule].")],
    serve: Annotated[
        bool, typer.Option("--serve", help="Start a server and a worker here, and run what is due until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put fit, extend and refit on a Prefect server, with the times that the file says; again replaces them."""
    from flows.deploy import run_deploy

    run_deploy(config, serve, as_json, typer.echo)


@app.command()
def demo(
    n_points: Annotated[int, typer.Option(min=2000, help="Points on the Swiss roll.")] = 50_000,
    folder: Annotated[Path, typer.Option(help="Where to keep the points and the run.")] = Path("trigpoint-demo"),
    picture: Annotated[Path, typer.Option(help="Where to write the picture (PNG).")] = Path("trigpoint-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the landmarks.")] = 0,
    cluster_kind: Annotated[str, typer.Option(help="local, or serial: no server and no workers.")] = "local",
) -> None:
    """Unroll a Swiss roll on the real thing, compare with the known sheet and draw it."""
    _require_png(picture)
    from flows.demo import run_demo

    with resumable():
        run_demo(n_points, folder, picture, seed, cluster_kind, typer.echo)


def _require_png(picture: Path | None) -> None:
    if picture is not None and (picture.suffix != ".png" or not picture.absolute().parent.is_dir()):
        raise typer.BadParameter(f"{picture} must be a .png file in a folder that exists.", param_hint="--picture")


def _print(value: Any, lines: list[str], as_json: bool) -> None:
    """A value for programs, or the same in lines for people."""
    typer.echo(json.dumps(value, indent=2) if as_json else "\n".join(lines))


def main() -> None:
    """Entry point of the command."""
    run_command(app)
