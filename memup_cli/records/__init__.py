"""What a run holds beside its data: the manifest's entries, checkpoints, logs."""
