"""Where the dissimilarities to the landmarks come from, one file a provider."""
