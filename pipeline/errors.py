"""The exceptions a caller may want to tell apart. All bad input is a ValueError."""


class InvalidInputError(ValueError):
    """An argument or the data cannot be used; the message names it, its value, the valid range and the remedy."""


class EmptySourceError(InvalidInputError):
    """A source has no rows."""


class DisconnectedGraphError(InvalidInputError):
    """The neighbor graph falls into several components and the policy is to refuse that."""


class ComponentWarning(UserWarning):
    """The neighbor graph fell into several components and the chosen policy repaired or reduced it."""


class ShortcutWarning(UserWarning):
    """The neighbor graph has likely short circuits: edges across gaps of the data that many paths use."""


class ScaleWarning(UserWarning):
    """Few columns carry nearly all of the variance: distances hardly depend on the others."""


class DiagonalWarning(UserWarning):
    """Most similarities are larger than those of the points to themselves allow."""


class OutsideWarning(UserWarning):
    """Data was asked for at places far from everything that is embedded."""


class InexactWarning(UserWarning):
    """Data at some places is a mean of different rows, smoothed, or of few right digits."""


class RecallWarning(UserWarning):
    """The neighbor search missed more of the true neighbors than it should."""


class StageError(RuntimeError):
    """Computing a partition of a stage failed; says which, and why."""

    def __init__(self, stage: str, partition: int, cause: BaseException | str) -> None:
        super().__init__(stage, partition, cause)
        self.stage, self.partition, self.cause = stage, partition, cause

    def __str__(self) -> str:
        return f"stage {self.stage}, partition {self.partition}: {described(self.cause)}"


class DriftError(RuntimeError):
    """New rows are not like those that the model was fitted on; their results are published nevertheless."""


class ClusterError(RuntimeError):
    """The workers, or the connection to them, are not to be had; the message says what to do."""


class StoreError(RuntimeError):
    """A run's store is damaged, of another format, or cannot be written; the message names what and where."""


class LeaseHeldError(StoreError):
    """Another run holds the store; the message names the holder."""


def described(cause: BaseException | str) -> str:
    """A fault in words: those of our own errors as they are, of others with their kind."""
    if isinstance(cause, str | InvalidInputError | StoreError | OSError):
        return str(cause)
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
