"""What a finished run says: `open_run`, and its results as files of other kinds."""
