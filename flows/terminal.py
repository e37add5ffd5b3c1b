"""How a command ends: words on the error stream and an exit code."""

import sys
import warnings
from collections.abc import Callable

import typer

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def run_command(command: Callable[[], None]) -> None:
    """Run the command line; faults become words on the error stream and an exit code, never a traceback."""
    warnings.showwarning = _show_warning
    try:
        command()
    except Exception as error:
        _end_for(error)


def _end_for(error: Exception) -> None:
    from pipeline.errors import InvalidInputError, StoreError

    if isinstance(error, InvalidInputError):
        _end(str(error), BAD_INPUT)
    if isinstance(error, StoreError | OSError | MemoryError):
        _end(str(error) or type(error).__name__, FAILED)
    raise error


def _end(message: str, code: int) -> None:
    typer.echo(f"trigpoint: {message}", err=True)
    sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"warning: {message}", err=True)
