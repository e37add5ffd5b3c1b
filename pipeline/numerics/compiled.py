"""Compilation of loops with numba: every kernel releases the GIL and is cached on disk.

numba is loaded with the first kernel that is called: a process that only starts others, or only reads results, does
without it.

Never `parallel=True`, because a kernel runs inside a task that already owns one thread; never `fastmath`, because
reordered sums would make bytes depend on how a loop was vectorized.
"""

import os
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import FunctionType
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])
# Doubles in one line of the cache.
LANES = 8


def is_first_time() -> bool:
    """Whether no loop has been compiled on this machine yet, as far as can be seen: the first run takes its time."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent)
    return next(folder.rglob("*.nbi"), None) is None


class Deferred:
    """A function for compiled code that `load` makes when it is first called, by Python or by another kernel."""

    _lock = RLock()

    def __init__(self, load: Callable[[], Callable[..., Any]]) -> None:
        self._load = load
        self._loaded: Callable[..., Any] | None = None

    def loaded(self) -> Callable[..., Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
        return self._loaded

    def __call__(self, *arguments: Any) -> Any:
        return (self._loaded or self.loaded())(*arguments)


def compiled(function: Function) -> Function:
    """Compile `function` to machine code that holds no GIL and keeps the order of floating-point operations."""
    return _deferred(function)


def inlined(function: Function) -> Function:
    """Compile a helper that is inlined into the kernels that call it."""
    return _deferred(function, inline="always")


def _deferred(function: Function, **options: Any) -> Function:
    kernel = Deferred(partial(_dispatcher, cast(FunctionType, function), options))
    return cast(Function, update_wrapper(kernel, function))


def _dispatcher(function: FunctionType, options: dict[str, Any]) -> Callable[..., Any]:
    import numba

    function = _calling_loaded(function)
    try:
        return cast(Callable[..., Any], numba.njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:
        # numba finds no writable folder for its cache (read-only install, no home): compile in every process.
        return cast(Callable[..., Any], numba.njit(nogil=True, **options)(function))


def _calling_loaded(function: FunctionType) -> FunctionType:
    """The function with other kernels that it names loaded, since numba compiles calls of what it has made only."""
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    kernels = {name: kernel.loaded() for name, kernel in named.items() if isinstance(kernel, Deferred)}
    known = {**function.__globals__, **kernels}
    copy = FunctionType(function.__code__, known, function.__name__, function.__defaults__, function.__closure__)
    return cast(FunctionType, update_wrapper(copy, function))


def _instruction(name: str) -> Callable[[], Callable[..., Any]]:
    return lambda: cast(Callable[..., Any], getattr(import_module("pipeline.numerics.instructions"), name))


prefetch = cast(Callable[..., None], Deferred(_instruction("prefetch")))
relax = cast(Callable[..., bool], Deferred(_instruction("relax")))
