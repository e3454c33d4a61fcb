"""The device to compute on, and digests of what is computed there."""

import hashlib

import torch

from ..errors import UsageProblem
from ..ranks import rank


def prepare_device(name: str, threads: int) -> torch.device:
    """The device to compute on; auto takes CUDA if there is any.

    One CPU thread is fastest for networks as small as these, and leaves the others to the loader.
    """
    torch.set_num_threads(threads)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageProblem(f"there is no device {name!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda":
        device = torch.device("cuda", rank().local if device.index is None else device.index)
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise UsageProblem(
                f"--device {name}: this machine has {count or 'no'} CUDA device{'s' if count > 1 else ''} that torch "
                "can use. Use --device cpu, or a torch build with CUDA on a machine with a GPU."
            )
    return device


def weights_digest(module: torch.nn.Module) -> str:
    return tensors_digest(module.state_dict())


def tensors_digest(weights: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
