"""Somebody's own arrays and tables as a task: `memup import arrays`."""
