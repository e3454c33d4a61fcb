"""Memory cells g_theta, and the features that they read."""
