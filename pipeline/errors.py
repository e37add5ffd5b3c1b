"""The exceptions a caller may want to tell apart. All bad input is a ValueError."""


class InvalidInputError(ValueError):
    """An argument or the data cannot be used; the message names it, its value, the valid range and the remedy."""


class DisconnectedGraphError(InvalidInputError):
    """The neighbor graph falls into several components and the policy is to refuse that."""


class ComponentWarning(UserWarning):
    """The neighbor graph fell into several components and the chosen policy repaired or reduced it."""
