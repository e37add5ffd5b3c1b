"""The command `trigpoint`. Heavy imports stand inside the commands, so that --help answers at once."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="trigpoint",
    help="Landmark Isomap and its relatives for datasets too big to embed any other way.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
def demo(
    n_points: Annotated[int, typer.Option(min=2000, help="Points on the Swiss roll.")] = 50_000,
    picture: Annotated[Path, typer.Option(help="Where to write the picture (PNG).")] = Path("trigpoint-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the landmarks.")] = 0,
) -> None:
    """Unroll a Swiss roll, place points it never saw, compare with the known sheet and draw it."""
    if picture.suffix != ".png" or not picture.absolute().parent.is_dir():
        raise typer.BadParameter(f"{picture} must be a .png file in a folder that exists.", param_hint="--picture")
    from flows.demo import run_demo

    run_demo(n_points, picture, seed, typer.echo)


def main() -> None:
    """Entry point of the command."""
    app()
