"""How long a run will take still: from the plan at first, more and more from how long things took."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Before so many seconds have been seen, a pace is an accident.
TRUSTED_SECONDS = 2.0
SLOWEST, FASTEST = 20.0, 0.05


@dataclass
class TimeLeft:
    """Told what has taken how long; `planned` is seconds for each stage, in order."""

    planned: Mapping[str, float]
    _seen: dict[str, float] = field(default_factory=dict)

    def finished(self, stage: str, seconds: float | None) -> None:
        """A stage is complete after so many seconds; None if nothing is known of how long it took."""
        self._seen[stage] = -1.0 if seconds is None else seconds

    @property
    def pace(self) -> float:
        """How many times as long as planned stages have taken so far."""
        known = {name: seconds for name, seconds in self._seen.items() if seconds >= 0 and self.planned.get(name)}
        seen, planned = sum(known.values()), sum(self.planned[name] for name in known)
        if seen < TRUSTED_SECONDS and planned < TRUSTED_SECONDS:
            return 1.0
        return min(SLOWEST, max(FASTEST, seen / planned))

    def of_stage(self, stage: str, seconds: float, share: float) -> float:
        """Seconds that a stage will take still, of which a share is done after so many seconds."""
        if share > 0:
            return seconds * (1 - share) / share
        return max(0.0, self.pace * self.planned.get(stage, 0.0) - seconds)

    def of_run(self, stage: str, seconds: float, share: float) -> float:
        """Seconds that the run will take still: the rest of this stage and all stages to come."""
        to_come = (planned for name, planned in self.planned.items() if name not in self._seen and name != stage)
        return self.of_stage(stage, seconds, share) + self.pace * sum(to_come)


def in_words(seconds: float) -> str:
    """A duration as one would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
