"""A store that fails at a chosen operation, for tests of what a crash leaves behind."""

from typing import Any

from pipeline.store.local import LocalBackend


class Crash(BaseException):
    """Stands for the death of the process: no handler of the program may catch it."""


class FaultyStore(LocalBackend):
    """Counts writes and deletions, and dies at the `crash_at`-th of them: before it, or halfway through it."""

    def __init__(self, root: Any, *, crash_at: int | None = None, halfway: bool = False) -> None:
        super().__init__(root)
        self.crash_at = crash_at
        self.halfway = halfway
        self.operations: list[str] = []

    def _count(self, key: str) -> None:
        self.operations.append(key)
        if len(self.operations) == self.crash_at:
            if self.halfway:
                path = self.root / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_name(f".{path.name}.0.partial").write_bytes(b"half")
            raise Crash(key)

    def write(self, key: str, data: bytes | memoryview) -> None:
        self._count(key)
        super().write(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._count(key)
        return super().create(key, data)

    def delete(self, key: str) -> None:
        self._count(key)
        super().delete(key)
