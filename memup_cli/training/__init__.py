"""What the stages do: collecting episodes now, scoring and training next."""
