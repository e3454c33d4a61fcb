"""The networks: detectors d_psi, memory cells g_theta, predictor q_phi, and what feeds them."""
