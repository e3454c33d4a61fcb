"""The training loop, and what it updates: algorithm 1 of the paper."""
