"""How well the memory predicts the steps that matter, and what it makes of single episodes."""
