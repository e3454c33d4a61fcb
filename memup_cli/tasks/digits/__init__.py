"""Permuted sequential MNIST, and where its images come from."""
