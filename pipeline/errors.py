"""The exceptions a caller may want to tell apart. All bad input is a ValueError."""


class InvalidInputError(ValueError):
    """An argument or the data cannot be used; the message names it, its value, the valid range and the remedy."""


class DisconnectedGraphError(InvalidInputError):
    """The neighbor graph falls into several components and the policy is to refuse that."""


class ComponentWarning(UserWarning):
    """The neighbor graph fell into several components and the chosen policy repaired or reduced it."""


class RecallWarning(UserWarning):
    """The neighbor search missed more of the true neighbors than it should."""


class StoreError(RuntimeError):
    """A run's store is damaged, of another format, or cannot be written; the message names what and where."""


class LeaseHeldError(StoreError):
    """Another run holds the store; the message names the holder."""
