"""Detectors d_psi: how uncertain y_k is, given only its local input; and the probe of what the past explains."""
