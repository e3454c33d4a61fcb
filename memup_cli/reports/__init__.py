"""What a report shows of runs: gathered from manifests, logs and evaluations, and written as a page or as text."""
