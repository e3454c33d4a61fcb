"""What a run is given away as: runs of experiment trackers, and model folders."""
