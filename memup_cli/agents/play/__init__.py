"""Playing: environments side by side, what is written down of their episodes, and a memory beside them."""
