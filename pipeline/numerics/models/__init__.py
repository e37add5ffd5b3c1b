"""Models of the landmarks, one file a method, and the measures that they start from."""
