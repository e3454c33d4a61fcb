"""Agents: a policy on (observation, memory state), the paper's RL baselines, and how they learn."""
