"""The train-memory stage: the job, its plan, and its course."""
