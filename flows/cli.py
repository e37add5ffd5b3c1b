"""The command `trigpoint`. Heavy imports are inside the commands, so that --help answers at once."""

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.options import GroupedCommand, takes_settings
from flows.terminal import aside, confirm, resumable, run_command, say
from pipeline.errors import InvalidInputError
from pipeline.settings import EXECUTION, ExtendSettings, FitSettings, InvertSettings, RefitSettings, StudySettings

app = typer.Typer(
    name="trigpoint",
    help="Landmark Isomap and related methods for datasets too large to embed any other way.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
command = partial(app.command, cls=GroupedCommand)

Store = Annotated[str, typer.Argument(metavar="STORE", help="Folder of the run.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the lock although its holder, on another machine, cannot be checked. Make sure that it is dead.",
        rich_help_panel=EXECUTION,
    ),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Run even if the plan exceeds the memory or disk.", rich_help_panel=EXECUTION)
]
Picture = Annotated[Path | None, typer.Option(metavar="PATH", help="Save a scatter plot of the embedding as PNG.")]
StudyPicture = Annotated[Path | None, typer.Option(metavar="PATH", help="Draw errors and times to this PNG file.")]
PathPicture = Annotated[Path | None, typer.Option(metavar="PATH", help="Draw the images on a path to this PNG file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"trigpoint {version('trigpoint')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


@command()
@takes_settings(FitSettings, "source")
def fit(
    settings: FitSettings,
    take_over: TakeOver = False,
    anyway: Anyway = False,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Embed a dataset on disk, partition by partition. The same command resumes a fit that was stopped."""
    _require_png(picture)
    from flows.runner import FitJob, run_drawn

    with resumable():
        run_drawn(FitJob(settings), picture, take_over, as_json, say, anyway)


@command()
@takes_settings(ExtendSettings, "store", "source")
def extend(
    settings: ExtendSettings,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with code 3 if the new rows drift from the fitted ones.")
    ] = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Place new rows in the space of a fitted run. Tests whether they drift from the fitted rows."""
    from flows.runner import run_extend

    with resumable():
        run_extend(settings, take_over, fail_on_drift, as_json, say)


@command()
@takes_settings(RefitSettings, "store")
def refit(
    settings: RefitSettings,
    take_over: TakeOver = False,
    anyway: Anyway = False,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Refit a run with new data and publish the next version. It is aligned with the published coordinates."""
    _require_png(picture)
    from flows.runner import RefitJob, run_drawn

    with resumable():
        run_drawn(RefitJob(settings), picture, take_over, as_json, say, anyway)


@command()
@takes_settings(FitSettings, "source")
def plan(settings: FitSettings, as_json: AsJson = False) -> None:
    """Estimate the tasks, memory, disk and time of a fit. Exits with code 2 if it will not fit."""
    from flows.reports import plan_report
    from flows.runner import FitJob

    job = FitJob(settings)
    _print(*plan_report(job.plan, job.data), as_json)
    job.plan.require_feasible()


@command()
@takes_settings(StudySettings, "source")
def study(settings: StudySettings, picture: StudyPicture = None, as_json: AsJson = False) -> None:
    """Compare landmarks and numbers of neighbors on a sample. Prints error and cost, and recommends a fit."""
    _require_png(picture)
    from flows.study import study_report

    # Progress goes to stderr: stdout has only the report.
    _print(*study_report(settings, picture, lambda line: typer.echo(line, err=True)), as_json)


@command()
def status(store: Store, as_json: AsJson = False) -> None:
    """Show the progress of a run, stage by stage. For a folder of batches, shows the drift of each."""
    from flows.status import history, status_report

    _print(*(history(store) or status_report(store)), as_json)


@command()
def verify(store: Store, as_json: AsJson = False) -> None:
    """Compare every chunk and object of a run with its checksum. Exits with code 1 if any is damaged."""
    from pipeline.results.run import open_run

    problems = open_run(store).damaged()
    _print({"damaged": problems}, [*problems, f"{len(problems) or 'Nothing is'} damaged."], as_json)
    raise typer.Exit(1 if problems else 0)


@command()
def gc(
    store: Store,
    keep_versions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="INTEGER", help="Number of newest versions to keep; the published one always stays."
        ),
    ] = None,
    retain: Annotated[
        str | None,
        typer.Option(
            metavar="extendable|results",
            help="Keep of published results only what readers need (results), or also what extend and export --model "
            "need (extendable).",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting published results.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete results of earlier settings. On request also old versions, and what only further commands need."""
    from flows.status import collected_garbage, slimming_report

    if retain is not None:
        for line in slimming_report(store, retain):
            aside(as_json, say)(line)
        confirm("Delete it?", yes)
    _print(*collected_garbage(store, keep_versions, retain), as_json)


@command()
def export(
    store: Store,
    output: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File to write: .npy, .parquet or .csv.", rich_help_panel="Results"),
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Array to write; repeat it to write a table.  [default: projection]",
            rich_help_panel="Results",
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Version to write.  [default: the published one]", rich_help_panel="Results"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Folder for a small model that extend accepts as STORE.", rich_help_panel="Model"
        ),
    ] = None,
    anchors: Annotated[
        int | None,
        typer.Option(
            metavar="INTEGER", help="Points that the model keeps.  [default: 20000, or all]", rich_help_panel="Model"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write published results to a file, or a small model to a folder. Of a folder of batches, writes all in one."""
    from flows.status import export_model_report, export_report

    if model is not None and output is None and array is None and version is None:
        with resumable():
            _print(*export_model_report(store, str(model), anchors), as_json)
    elif output is not None and model is None and anchors is None:
        _print(*export_report(store, array or ["projection"], output, version), as_json)
    else:
        raise InvalidInputError(
            "give either --output PATH for results (with --array and --version) or --model PATH for a model of the "
            "published version (with --anchors)."
        )


@command()
@takes_settings(InvertSettings, "store", "coordinates")
def invert(
    settings: InvertSettings,
    take_over: TakeOver = False,
    picture: PathPicture = None,
    as_json: AsJson = False,
) -> None:
    """Map coordinates in the space of a run back to data. Or compute how well its own rows are reconstructed."""
    _require_png(picture)
    from flows.runner import run_invert

    with resumable():
        run_invert(settings, take_over, picture, as_json, say)


@command()
def deploy(
    config: Annotated[
        Path,
        typer.Option("--config", metavar="PATH", help="TOML file with the settings of the flows and [schedule]."),
    ],
    serve: Annotated[
        bool, typer.Option("--serve", help="Start a server and a worker here, and run flows when due until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deploy fit, extend and refit to a Prefect server. Deploying again replaces the deployments."""
    if serve:
        from flows.serving import run_served as run
    else:
        from flows.deploy import run_deploy as run
    run(config, as_json, say)


@command()
def demo(
    n_points: Annotated[int, typer.Option(min=2000, metavar="INTEGER", help="Points on the Swiss roll.")] = 50_000,
    folder: Annotated[Path, typer.Option(metavar="PATH", help="Folder for the data and the run.")] = Path(
        "trigpoint-demo"
    ),
    picture: Annotated[Path, typer.Option(metavar="PATH", help="PNG file to draw to.")] = Path("trigpoint-demo.png"),
    seed: Annotated[int, typer.Option(min=0, metavar="INTEGER", help="Random seed.")] = 0,
    cluster_kind: Annotated[str, typer.Option(metavar="auto|serial|local", help="Where to run, as of fit.")] = "auto",
) -> None:
    """Unroll a Swiss roll, compare it with the true sheet and draw both."""
    _require_png(picture)
    from flows.demo import run_demo

    with resumable():
        run_demo(n_points, folder, picture, seed, cluster_kind, say)


def _require_png(picture: Path | None) -> None:
    if picture is not None and (picture.suffix != ".png" or not picture.absolute().parent.is_dir()):
        raise typer.BadParameter(f"{picture} must be a .png file in a folder that exists.", param_hint="--picture")


def _print(value: Any, lines: list[str], as_json: bool) -> None:
    """Print a value as JSON, or its lines of text."""
    say(json.dumps(value, indent=2) if as_json else "\n".join(lines))


def main() -> None:
    """Entry point of the command."""
    run_command(app)
