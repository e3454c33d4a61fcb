"""Whether training will fit into memory: what one update takes, predicted from short sequences, and what is free."""

import numpy as np
import torch

from ..compute.pace import Watch
from ..limits import free_ram
from ..options.baseline_options import TrainBaselineOptions
from ..streaming.actions import late_field
from ..tasks.spec import TaskSpec
from .networks import Baseline

PROBES = (64, 128, 256)  # lengths, at batch 1: three points of a parabola, because attention may be quadratic
# Peak of an update over what it saves; measured: 0.86, 2.27, 2.23, 1.70, 1.65
PEAK = {"lstm": 1.0, "mingru": 2.4, "srnn": 2.3, "transformer": 1.8, "gtrxl": 1.8}
COPIES = 3  # of the inputs: in the slab, in the window taken from it, on the device


def saved_bytes(model: Baseline, spec: TaskSpec, batch: int, length: int) -> int:
    """What one forward pass keeps for the backward pass, measured."""
    device = next(model.parameters()).device
    fields = {f.name: f for f in spec.fields}
    arrays = {}
    for name in model.inputs.names:
        field = fields[name] if name in fields else late_field(spec, name)
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
    return free_ram()
