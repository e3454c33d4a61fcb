"""What a small run of every stage gives is what it gave before: `python -m tests.test_pinned` writes it down anew.

The last bits of weights depend on the machine. So everything is stored twice: so that it holds everywhere (episodes,
words and counts as they are, other numbers roughly), and as digests of all bits. These have to be the same where the
processor computes as the one did that wrote them, which a few computations tell.
"""

import hashlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from safetensors.numpy import load

import memup_cli
from tests.cli import Memup, files_of

STORED = Path(__file__).parent / "data" / "pinned.json"
ROUGHLY = 2e-3
CHANGING = re.compile(r"run|seconds|minutes|bytes|(limit|peak_rss)_bytes|data_wait_share|.*_per_second")

ENVIRONMENT = """
import gymnasium
from gymnasium import spaces

class Lamp(gymnasium.Env):
    observation_space = spaces.Dict(lamp=spaces.Discrete(3), way=spaces.Box(0, 1, (2,)), doors=spaces.Discrete(2))
    action_space = spaces.Discrete(2)

    def look(self):
        shown = {"lamp": self.side + 1 if self.t == 1 else 0, "way": self.np_random.random(2, "float32")}
        return {**shown, "doors": int(self.t == self.last)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.side, self.last = 0, int(self.np_random.integers(2)), int(self.np_random.integers(12, 16))
        return self.look(), {}

    def step(self, action):
        done, right = self.t == self.last, action == self.side
        self.t += 1
        return self.look(), float(done and right), done, False, {"is_success": bool(right)} if done else {}

gymnasium.register("Lamp-v0", Lamp)
"""

EVERYWHERE = "--run run --json --quiet --device cpu"
FEW = "--episodes 40 --test-episodes 10"
TINY = "--hidden 8 --predictor-hidden 8 --batch 8 --evaluate-every 4"
MEMORY = f"train-memory {TINY} --restart"
BASELINE = "train-baseline --hidden 8 --batch 8 --updates 4 --model"
AGENT = "train-agent --hidden 8 --envs 4 --iteration-steps 100 --steps 300 --minibatch 32 --agent"

# name: the cell whose run it goes on with, and its commands, each with EVERYWHERE
CELLS: dict[str, tuple[str, ...]] = {
    "maze": ("", f"collect tmaze --length 20 {FEW}"),
    "noisy": ("", "collect tmaze --length 53 --distractors 2 --episodes 60 --test-episodes 5"),
    "endless": ("", f"collect endless-tmaze --corridors 2 --length 8 {FEW}"),
    "copy": ("", f"collect copy --length 24 {FEW}"),
    "scattered": ("", f"collect scattered-copy --length 30 {FEW}"),
    "add": ("", f"collect add --length 12 {FEW}"),
    "lamp": ("", f"collect gym --import lamp.py --env-id Lamp-v0 {FEW}"),
    # scores, and what is planned for them
    "maze scored": ("maze", "score --updates 60 --hidden 16", "train-memory --dry-run"),
    "noisy scored": ("noisy", "score --updates 60 --hidden 16 --detector probe", "train-memory --dry-run"),
    "endless scored": ("endless", "score --updates 60 --hidden 16"),
    "scattered scored": ("scattered", "score --updates 30 --hidden 16", "train-memory --dry-run"),
    "add scored": ("add", "score --updates 30 --hidden 16 --detector regression"),
    "lamp scored": ("lamp", "score --updates 60 --hidden 16", "train-memory --dry-run"),
    "paper": ("scattered scored", "train-memory --preset paper --dry-run"),
    # the memory
    "planned": ("maze scored", f"{MEMORY} --updates 8", "evaluate memory --timelines 1"),
    "extended": ("planned", f"train-memory {TINY} --updates 12"),
    "uniform": ("planned", f"{MEMORY} --updates 8 --select uniform"),
    "current": ("planned", f"{MEMORY} --updates 8 --select current"),
    "gru": ("planned", f"{MEMORY} --updates 8 --cell gru --targets 2 --predict-every 2 --near"),
    "mingru": ("planned", f"{MEMORY} --updates 8 --cell mingru --layers 2 --embedding 8"),
    "priority": ("planned", f"{MEMORY} --updates 8 --rollout-sampling priority --stretch 3 --replay 0.25"),
    "change": ("planned", f"{MEMORY} --updates 8 --rollout-sampling priority --stretch 3 --priority change"),
    "utility": ("noisy scored", f"{MEMORY} --updates 8 --select utility --explore 0.5"),
    "corridors": ("endless scored", f"{MEMORY} --updates 8", "evaluate memory"),
    "doors": ("lamp scored", f"{MEMORY} --updates 8", "evaluate memory"),
    "totals": ("scattered scored", f"{MEMORY} --updates 8 --context totals", "evaluate memory"),
    "carried": ("scattered scored", f"{MEMORY} --updates 8 --context carried --context-hidden 8"),
    "as the paper": ("scattered scored", f"{MEMORY} --updates 4 --preset paper"),
    "raced": ("scattered scored", f"{MEMORY} --updates 1500 --until accuracy>=0.01 --lr 0.03"),
    "window": (
        "add scored",
        f"{MEMORY} --updates 8 --context window --context-hidden 8 --spread learned --starts 0.25",
        "evaluate memory",
    ),
    "online": ("copy", f"{MEMORY} --updates 8 --scores online --context window --context-hidden 8"),
    # baselines and agents
    "baselines": (
        "totals",
        *(f"{BASELINE} {model}" for model in ("lstm", "lstm --truncate 6", "srnn", "transformer --truncate 6")),
        "evaluate baselines",
    ),
    "ppo": ("planned", f"{AGENT} ppo --outlook --imitate 1", "evaluate agent --episodes 10"),
    "qrdqn": ("planned", f"{AGENT} qrdqn --outlook --quantiles 8", "evaluate agent --episodes 10"),
    "ppo-lstm": ("maze", f"{AGENT} ppo-lstm --core-hidden 8 --rollout 8", "evaluate agent --episodes 10"),
    "ppo of doors": ("doors", f"{AGENT} ppo"),
    "agents' options": ("planned", *(f"train-agent --agent {agent} --dry-run" for agent in ("ppo", "qrdqn", "amrl"))),
}


@dataclass(frozen=True)
class Cells:
    """What the cells give, each made when it is first asked for; their runs stay in a folder for those that go on."""

    folder: Path
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def made(self, name: str) -> dict[str, Any]:
        if name not in self.found:
            memup, (before, *commands) = Memup(self.folder / name), CELLS[name]
            if before:
                self.made(before)
                shutil.copytree(self.folder / before, memup.folder)
            else:
                memup.folder.mkdir()
                (memup.folder / "lamp.py").write_text(ENVIRONMENT)
            run = memup.folder / "run"
            old = files_of(run)
            said = [memup(*command.split(), *EVERYWHERE.split()).json for command in commands]
            changed = {file: data for file, data in files_of(run).items() if old.get(file) != data}
            self.found[name] = described(run, changed, said)
        return self.found[name]


def described(run: Path, files: dict[str, bytes], said: list[dict[str, Any]]) -> dict[str, Any]:
    """What commands said, and what is in the files that they made or changed; no parts in which there is nothing."""
    episodes, arrays, logs, timeline = {}, {}, {}, {}
    for name, data in files.items():
        folder, _, file = name.rpartition("/")
        if re.fullmatch(r"trajectories/\w+/0000\.zarr/zarr\.json", name):
            split = name.split("/")[1]
            episodes[split] = digest(list(memup_cli.open_trajectories(run, split)))
        elif re.fullmatch(r"scores/.*\.zarr/zarr\.json", name):
            store = zarr.open_group(str(run / folder), mode="r")
            arrays[folder] = {key: np.asarray(values[:]) for key, values in store.arrays()}
        elif file.endswith(".safetensors"):
            arrays[name.removesuffix(".safetensors")] = load(data)
        elif file == "metrics.jsonl":
            logs[folder] = lasting([json.loads(line) for line in data.splitlines()])
        elif file == "timeline.json":
            timeline = json.loads(data)
    said = lasting(said)
    computed = {"said": said, "arrays": arrays, "logs": logs, "timeline": timeline}
    found = {
        "said": rounded(said),
        "episodes": episodes,
        # The best weights are often the last ones.
        "arrays": {name: summary(values) for name, values in arrays.items() if not name.endswith("/best")},
        "logs": {name: rounded(rows[-2:]) for name, rows in logs.items()},
        "bits": {part: digest(value) for part, value in computed.items() if value},
    }
    return {part: value for part, value in found.items() if value}


def lasting(found: Any) -> Any:
    """Without what clocks say, and how much memory there was."""
    if isinstance(found, dict):
        return {key: lasting(value) for key, value in found.items() if not CHANGING.fullmatch(key)}
    return [lasting(value) for value in found] if isinstance(found, list) else found


def rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.4g}") if isinstance(found, float) else found


def summary(arrays: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Size, sum and norm of those whose names have the same beginning."""
    groups: dict[str, list[np.ndarray]] = {}
    for name, values in sorted(arrays.items()):
        groups.setdefault(".".join(name.split(".")[:2]), []).append(values.astype(np.float64).ravel())
    joined = {group: np.concatenate(parts) for group, parts in groups.items()}
    return {g: [v.size, *(float(f"{n:.5g}") for n in (v.sum(), np.linalg.norm(v)))] for g, v in joined.items()}


def digest(found: Any) -> str:
    """Of any JSON, with arrays in it."""

    def told(values: np.ndarray) -> list[Any]:
        return [values.dtype.str, values.shape, hashlib.sha256(values.tobytes()).hexdigest()]

    return hashlib.sha256(json.dumps(found, sort_keys=True, default=told).encode()).hexdigest()


def arithmetic() -> dict[str, str]:
    """What tells processors and versions apart that do not compute the same bits."""
    torch.set_num_threads(1)

    def numbers(*shape: int) -> torch.Tensor:
        return (torch.arange(math.prod(shape)) * 7919 % 1009 / 1009 - 0.5).reshape(shape)

    cell = torch.nn.LSTM(13, 17, batch_first=True)
    for weights in cell.parameters():
        weights.data.copy_(numbers(*weights.shape))
    optimiser = torch.optim.Adam(cell.parameters())
    for _ in range(3):
        optimiser.zero_grad()
        cell(numbers(5, 7, 13))[0].pow(2).mean().backward()
        optimiser.step()
    x, y = numbers(37, 53), numbers(53, 29)
    random = torch.randn(100, generator=torch.Generator().manual_seed(0))
    found = [*cell.parameters(), x @ y, x.exp(), x.tanh(), x.sigmoid(), x.softmax(1), (x + 1).log(), x.sum(), random]
    arrays = [values.detach().numpy() for values in found]
    wide = x.double().numpy()
    arrays += [np.exp(wide), np.log(wide + 1), np.exp(x.numpy()), wide @ wide.T, wide.sum(), wide.std(0)]
    return {
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "results": digest([np.asarray(a) for a in arrays]),
    }


def differences(was: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            yield from differences(was.get(key, "nothing"), now.get(key, "nothing"), f"{path} > {key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, pair in enumerate(zip(was, now, strict=True)):
            yield from differences(*pair, f"{path} > {number}")
    elif not (was == now or (isinstance(was, float) and isinstance(now, float) and is_near(was, now, abs(was)))):
        yield f"{path}: {was} was stored, and now it is {now}"


def array_differences(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Of summaries: a sum may be off by as much as the norm."""
    for file in sorted(was.keys() | now.keys()):
        old, new = was.get(file, {}), now.get(file, {})
        for group in sorted(old.keys() | new.keys()):
            size, total, norm = old.get(group, (0, 0, 0))
            size_now, total_now, norm_now = new.get(group, (0, 0, 0))
            if size != size_now or not (is_near(total, total_now, norm) and is_near(norm, norm_now, norm)):
                yield f"arrays > {file} > {group}: {old.get(group)} was stored, and now it is {new.get(group)}"


def is_near(was: float, now: float, scale: float) -> bool:
    return abs(was - now) <= max(ROUGHLY * scale, 1e-5)


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text())


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> Cells:
    return Cells(tmp_path_factory.mktemp("cells"))


@pytest.mark.parametrize("name", CELLS)
def test_it_is_what_it_was(stored, cells, name):
    was, now = stored["cells"][name], cells.made(name)
    wrong = [d for part in ("said", "episodes", "logs") for d in differences(was.get(part), now.get(part), part)]
    wrong += array_differences(was.get("arrays", {}), now.get("arrays", {}))
    if stored["arithmetic"] == arithmetic():
        wrong += differences(was["bits"], now["bits"], "bits")
    assert wrong == []


def test_what_is_stored_is_tested(stored):
    assert list(stored["cells"]) == list(CELLS)


def laid_out(found: Any, levels: int) -> str:
    """JSON, with a line for each part of a cell."""
    if not levels or not isinstance(found, dict):
        return json.dumps(found, separators=(",", ":"))
    return "{\n" + ",\n".join(f'"{key}": {laid_out(value, levels - 1)}' for key, value in found.items()) + "\n}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        given = Cells(Path(folder))
        found = {"arithmetic": arithmetic(), "cells": {name: given.made(name) for name in CELLS}}
    STORED.write_text(laid_out(found, 3) + "\n")
