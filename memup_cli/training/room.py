"""Whether training will fit into memory: what one update takes, predicted from short sequences, and what is free."""

from pathlib import Path

import numpy as np
import torch

from ..baseline_configs import TrainBaselineOptions
from ..models.baselines import Baseline
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .targets import previous_action_field
from .watch import Watch

PROBES = (64, 128, 256)  # lengths, at batch 1: three points of a parabola, because attention may be quadratic
PEAK = {"lstm": 1.0, "srnn": 2.3, "transformer": 1.8}  # of an update over what it saves; measured: 0.86, 2.23, 1.70
COPIES = 3  # of the inputs: in the slab, in the window taken from it, on the device


def saved_bytes(model: Baseline, spec: TaskSpec, batch: int, length: int) -> int:
    """What one forward pass keeps for the backward pass, measured."""
    device = next(model.parameters()).device
    fields = {f.name: f for f in spec.fields}
    arrays = {}
    for name in model.inputs.names:
        field = previous_action_field(spec) if name == PREVIOUS_ACTION else fields[name]
        arrays[name] = torch.from_numpy(np.zeros((batch, length, *field.shape), field.numpy)).to(device)
    watch = Watch(model)
    with watch.saved_tensors():
        prediction, _ = model(arrays, model.initial(batch))
        model.losses(prediction, torch.zeros(batch, length, device=device)).mean()
    return watch.saved_bytes


def predict_saved(model: Baseline, spec: TaskSpec, batch: int, length: int) -> int:
    """What saved_bytes() would measure, extrapolated: c + batch * (a length + b length^2); c are the weights."""
    b, a, c = np.polyfit(PROBES, [saved_bytes(model, spec, 1, probe) for probe in PROBES], 2)
    return int(max(c, 0) + batch * (a * length + max(b, 0) * length**2))


def predict_bytes(spec: TaskSpec, options: TrainBaselineOptions, model: Baseline, length: int) -> int:
    """All that an update needs: saved tensors and their gradients; weights, gradients and Adam's averages; inputs."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    row = sum(f.row_bytes for f in spec.fields) + 16
    inputs = COPIES * options.batch * length * row
    return int(PEAK[options.model] * predict_saved(model, spec, options.batch, length)) + 4 * weights + inputs


def free_bytes(device: torch.device) -> int:
    """What the device has free: a GPU's own figure; else of the machine and of the control groups we are in."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_ram(Path("/proc"), Path("/sys/fs/cgroup"))


def free_ram(proc: Path, cgroups: Path) -> int:
    """MemAvailable, or less if a control group (version 1 or 2) of this process or one around it allows less."""
    lines = (proc / "meminfo").read_text().splitlines()
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    for line in (proc / "self" / "cgroup").read_text().splitlines() if (proc / "self" / "cgroup").exists() else []:
        _, controllers, inner = line.split(":", 2)
        if controllers in ("", "memory"):
            root = cgroups / controllers
            names = (
                ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
            )
            place = root / inner.strip("/")
            for folder in (place, *place.parents):  # in a container only the root may be visible
                free += _group_room(folder, *names)
                if folder == root:
                    break
    return max(0, min(free))


def _group_room(folder: Path, limit: str, usage: str) -> list[int]:
    """Limit minus usage of one control group; file cache, which is given back on demand, is not counted as used."""
    try:
        most, used = ((folder / name).read_text().strip() for name in (limit, usage))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return []
    if most == "max":
        return []
    cache = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return [int(most) - int(used) + cache]
