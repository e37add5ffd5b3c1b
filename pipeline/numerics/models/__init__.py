"""Models of the landmarks, one file per method, and the dissimilarities that they start from."""
