"""Supervised baselines, which are trained on whole sequences or on windows of them."""
