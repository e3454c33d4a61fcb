"""Lamps, a memory task for memup. Importing this package registers the environment memup_lamps/Lamps-v0."""

import gymnasium

gymnasium.register(
    "memup_lamps/Lamps-v0",
    entry_point="memup_lamps.environment:LampsEnv",
    vector_entry_point="memup_lamps.environment:LampsVectorEnv",
)
