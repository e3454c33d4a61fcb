"""Gymnasium environments of memup. Importing this module registers them:

>>> import gymnasium, memup_cli.envs
>>> gymnasium.make("memup/TMaze-v0", length=100)
>>> gymnasium.make_vec("memup/TMaze-v0", num_envs=64, length=100)
>>> gymnasium.make("memup/EndlessTMaze-v0", corridors=10, length=100)
>>> gymnasium.make("memup/TwoColors-v0")
"""

import gymnasium

gymnasium.register(
    "memup/TMaze-v0",
    entry_point="memup_cli.tasks.mazes.tmaze_env:TMazeEnv",
    vector_entry_point="memup_cli.tasks.mazes.tmaze_env:TMazeVectorEnv",
)
gymnasium.register(
    "memup/EndlessTMaze-v0",
    entry_point="memup_cli.tasks.mazes.tmaze_env:EndlessTMazeEnv",
    vector_entry_point="memup_cli.tasks.mazes.tmaze_env:EndlessTMazeVectorEnv",
)
gymnasium.register("memup/TwoColors-v0", entry_point="memup_cli.tasks.two_colors.environment:TwoColorsEnv")
