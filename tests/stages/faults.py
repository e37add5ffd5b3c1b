"""A store that fails at a chosen operation, for tests of what a crash leaves behind."""

from typing import Any

from pipeline.store.durable import DurableLocalStore


class Crash(BaseException):
    """Stands for the death of the process: no handler of the program may catch it."""


class FaultyStore(DurableLocalStore):
    """Counts writes and deletions, and dies at the `crash_at`-th of them: before it, or halfway through it."""

    def __init__(
        self, root: Any, *, crash_at: int | None = None, halfway: bool = False, read_only: bool = False
    ) -> None:
        super().__init__(root, read_only=read_only)
        self.crash_at = crash_at
        self.halfway = halfway
        self.operations: list[str] = []

    def with_read_only(self, read_only: bool = False) -> "FaultyStore":
        # The view shares the count: zarr makes views of its own.
        view = FaultyStore(self.root, crash_at=self.crash_at, halfway=self.halfway, read_only=read_only)
        view.operations = self.operations
        return view

    def _count(self, key: str) -> None:
        self.operations.append(key)
        if len(self.operations) == self.crash_at:
            if self.halfway:
                path = self.root / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_name(f".{path.name}.0.partial").write_bytes(b"half")
            raise Crash(key)

    def write_now(self, key: str, data: bytes, exclusive: bool = False) -> None:
        self._count(key)
        super().write_now(key, data, exclusive)

    async def delete(self, key: str) -> None:
        self._count(key)
        await super().delete(key)
