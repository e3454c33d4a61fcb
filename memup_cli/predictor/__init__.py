"""The predictor q_phi(y_k | m_t, c_k): contexts of target steps, prediction points, and its network."""
