"""The stages of a run: for one partition, read, compute, write. They know no cluster and no orchestrator."""
