"""Adam, bit for bit as torch.optim has it.

The optimisers of torch.optim import torch's compiler when they are made: about as much time as torch itself takes, and
100 MB. Nothing here is compiled.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

BETA1, BETA2 = 0.9, 0.999
# What torch.optim.Adam can vary besides, as checkpoints hold it.
FIXED = {
    "betas": (BETA1, BETA2),
    "weight_decay": 0,
    "amsgrad": False,
    "maximize": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "decoupled_weight_decay": False,
}
MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """Its state_dict() is that of torch.optim.Adam; each loads the other's. No step waits for the device."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float = 1e-8, fused: bool = True) -> None:
        """fused: as torch.optim.Adam(fused=True), else as its default, which rounds differently."""
        self._parameters = list(parameters)
        self.lr, self._eps, self._fused = lr, eps, fused
        self._state: dict[int, dict[str, Tensor]] = {}  # of parameters that have had a gradient

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Parameters without a gradient stay as they are."""
        alike: dict[Any, list[tuple[Tensor, ...]]] = defaultdict(list)
        for i, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                state = self._state.get(i) or self._begin(i)
                alike[parameter.device, parameter.dtype].append((parameter, parameter.grad, *state.values()))
        for rows in alike.values():
            parameters, grads, steps, means, squares = (list(column) for column in zip(*rows, strict=True))
            torch._foreach_add_(steps, 1)
            if self._fused:
                torch._fused_adam_(
                    parameters, grads, means, squares, [], steps, lr=self.lr, beta1=BETA1, beta2=BETA2,
                    weight_decay=0, eps=self._eps, amsgrad=False, maximize=False,
                )  # fmt: skip
            else:
                self._move(parameters, grads, steps, means, squares)

    def _begin(self, i: int) -> dict[str, Tensor]:
        parameter = self._parameters[i]
        step = torch.zeros((), dtype=torch.float32, device=self._step_device(parameter))
        self._state[i] = {"step": step} | {name: torch.zeros_like(parameter) for name in MOMENTS}
        return self._state[i]

    def _step_device(self, parameter: Tensor) -> torch.device:
        """Where the count of steps is read: by the fused kernel, or here."""
        return parameter.device if self._fused else torch.device("cpu")

    def _move(
        self, parameters: list[Tensor], grads: list[Tensor], steps: list[Tensor], means: list[Tensor],
        squares: list[Tensor],
    ) -> None:  # fmt: skip
        torch._foreach_lerp_(means, grads, 1 - BETA1)
        torch._foreach_mul_(squares, BETA2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - BETA2)
        counts = [step.item() for step in steps]
        spread = torch._foreach_sqrt(squares)
        torch._foreach_div_(spread, [(1 - BETA2**count) ** 0.5 for count in counts])
        torch._foreach_add_(spread, self._eps)
        torch._foreach_addcdiv_(parameters, means, spread, [-self.lr / (1 - BETA1**count) for count in counts])

    def state_dict(self) -> dict[str, Any]:
        group = {"lr": self.lr, "eps": self._eps, "fused": self._fused or None, **FIXED}
        return {
            "state": {i: dict(state) for i, state in sorted(self._state.items())},
            "param_groups": [{**group, "params": list(range(len(self._parameters)))}],
        }

    @torch.no_grad()
    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Into tensors laid out like the parameters: the kernel would not look."""
        (group,) = saved["param_groups"]
        if len(group["params"]) != len(self._parameters):
            raise ValueError(f"an optimiser of {len(group['params'])} tensors, not {len(self._parameters)}")
        if other := {name: group[name] for name in FIXED if group.get(name, FIXED[name]) != FIXED[name]}:
            raise ValueError(f"an optimiser with {other}")
        loaded = {}
        for i, state in saved["state"].items():
            parameter = self._parameters[i]
            if any(state[name].shape != parameter.shape for name in MOMENTS):
                raise ValueError(f"an optimiser of other tensors: {state['exp_avg'].shape}, not {parameter.shape}")
            step = torch.tensor(float(state["step"]), device=self._step_device(parameter))
            loaded[i] = {"step": step} | {name: torch.empty_like(parameter).copy_(state[name]) for name in MOMENTS}
        self.lr, self._eps, self._state = group["lr"], group["eps"], loaded
