"""Which points become landmarks, and distances to all landmarks from those to a few."""
