"""The stages of the pipeline: what each needs, does, and records."""
