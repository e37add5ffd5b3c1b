"""How a command ends: words on the error stream and an exit code."""

import _thread
import os
import shlex
import shutil
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

FAILED, BAD_INPUT, DRIFTED, INTERRUPTED = 1, 2, 3, 130
LATER_SECONDS = 0.05
Say = Callable[[str], None]


def aside(as_json: bool, say: Say) -> Say:
    """Where to say what is not part of the JSON."""
    return (lambda _: None) if as_json else say


def say(line: str) -> None:
    """Print a line for as long as somebody reads: what is computed does not depend on that, and goes on in silence."""
    try:
        typer.echo(line)
    except BrokenPipeError:
        # What is left in the buffer goes there too; Python would complain about it at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def confirm(question: str, yes: bool) -> None:
    """Go on if it was said beforehand, or is said now on a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        from pipeline.errors import InvalidInputError

        raise InvalidInputError("nobody can be asked here whether to delete this; say so with --yes.")
    typer.confirm(question, abort=True, err=True)


def run_command(command: Callable[[], None]) -> None:
    """Run the command line; faults become words on the error stream and an exit code, never a traceback."""
    warnings.showwarning = _show_warning
    try:
        command()
    except Exception as error:
        _end_for(error)
    finally:
        _leave_if_stuck()


def _leave_if_stuck() -> None:
    """End at once where Prefect would wait for minutes for a server that is gone. All of ours is closed by now."""
    server = sys.modules.get("flows.server")
    if server is not None and server.UNDELIVERED.is_set():
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        code = getattr(error, "code", FAILED)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else FAILED)


@contextmanager
def resumable() -> Iterator[None]:
    """An interruption ends the command with the words that go on from there."""
    try:
        with _no_interruption_lost():
            yield
    except KeyboardInterrupt:
        typer.echo(f"trigpoint: stopped; what is complete is kept. To go on: {command_line(sys.argv[1:])}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _no_interruption_lost() -> Iterator[None]:
    """Raise an interruption again that came while an object was being finalized: Python only tells of those."""
    before = sys.unraisablehook

    def told(unraisable: "sys.UnraisableHookArgs") -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # A moment later: raised in here it would only be told of again.
            again = threading.Timer(LATER_SECONDS, _thread.interrupt_main)
            again.daemon = True
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = told
    try:
        yield
    finally:
        sys.unraisablehook = before


def command_line(arguments: Sequence[str]) -> str:
    """How to type a command of this program, wherever it is installed."""
    program = Path(sys.argv[0])
    name = "trigpoint" if shutil.which("trigpoint") or program.name != "trigpoint" else str(program)
    return shlex.join([name, *arguments])


def _end_for(error: Exception) -> None:
    from pipeline.errors import ClusterError, DriftError, InvalidInputError, StageError, StoreError, described

    if isinstance(error, InvalidInputError):
        _end(str(error), BAD_INPUT)
    if isinstance(error, DriftError):
        _end(str(error), DRIFTED)
    if isinstance(error, StageError | ClusterError | StoreError | OSError | MemoryError):
        _end(str(error) or type(error).__name__, FAILED)
    if type(error).__module__.partition(".")[0] in ("prefect", "httpx", "httpcore"):
        typer.echo(err=True)  # Prefect's own words on it may stand there, without an end of line
        _end(
            f"the Prefect server failed or was lost ({described(error)}); what is complete is kept: run the same "
            "command again.",
            FAILED,
        )
    raise error


def _end(message: str, code: int) -> None:
    typer.echo(f"trigpoint: {message}", err=True)
    sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"warning: {message}", err=True)
