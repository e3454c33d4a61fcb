"""One episode to look at: a GIF that moves, or a strip of pictures in one PNG."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...extras import needs
from ...tasks.spec import TaskSpec
from ..policies import Policy
from .environments import open_arena
from .playing import Player

with needs("film"):
    from PIL import Image, ImageDraw

FORMATS = (".gif", ".png")
STRIP, COLUMNS, WIDTH = 40, 8, 224  # pictures of a strip, how many in a row, pixels of each
CAPTION = 16  # pixels below each


def film_episode(
    policy: Policy, task: dict[str, Any], spec: TaskSpec, seed: int, device: torch.device, path: Path
) -> int:
    """Play one greedy episode and write its pictures; returns the number of its steps."""
    arena = open_arena(task, spec, 1, render_mode="rgb_array")
    arena.frames = []
    recording = Player(arena, policy, device, rollout=1 << 30).play(seed, greedy=True)
    arena.close()
    assert recording is not None
    frames = [Image.fromarray(frame) for frame in arena.frames]
    if path.suffix.lower() == ".gif":
        frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=50, loop=0)
    else:
        _strip(frames, recording.reward[:, 0]).save(path, format="PNG")
    return len(frames)


def _strip(frames: list[Image.Image], reward: np.ndarray) -> Image.Image:
    """Pictures evenly over the episode, row by row, each with its step and the return before it."""
    steps = np.unique(np.linspace(0, len(frames) - 1, STRIP).round().astype(int))
    earned = np.concatenate([[0.0], np.cumsum(reward, dtype=np.float64)])
    height = round(frames[0].height * WIDTH / frames[0].width)
    rows = -(-len(steps) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * WIDTH, rows * (height + CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for place, step in enumerate(steps):
        left, top = place % COLUMNS * WIDTH, place // COLUMNS * (height + CAPTION)
        sheet.paste(frames[step].convert("RGB").resize((WIDTH - 2, height)), (left, top))
        draw.text((left + 4, top + height + 2), f"step {step}, return {earned[step]:.2f}", fill="black")
    return sheet
