"""T-Mazes: as tasks, and as Gymnasium environments."""
