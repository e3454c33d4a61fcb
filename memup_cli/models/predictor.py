"""Memory and predictor together: q_phi(y_k | m_t, x_k), the model that train-memory trains and evaluate reads."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..tasks.spec import TaskSpec
from .encoders import FieldEncoder, mlp
from .memory import CELLS, State


class MemoryModel(nn.Module):
    """Memory over the memory inputs, predictor over [m_t, query at k]."""

    def __init__(self, spec: TaskSpec, cell: str, hidden: int, horizon: int, predictor_hidden: int) -> None:
        super().__init__()
        self.kind = spec.target_kind
        self.inputs = FieldEncoder(spec, spec.memory_input)
        self.query = FieldEncoder(spec, spec.query)
        self.memory = CELLS[cell](self.inputs.size, hidden, horizon)
        outputs = spec.classes[spec.target] if self.kind == "classes" else 1
        self.predictor = mlp(hidden + self.query.size, predictor_hidden, outputs)

    def rollout(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """m_t along a window: (B, r, ...) -> (B, r, H)."""
        m, state = self.memory(self.inputs(arrays), state)
        return m, state

    def predict(self, m: Tensor, query: dict[str, Tensor]) -> Tensor:
        """Logits (..., classes) or values (...) for queries (..., K) from memory states (..., 1 or K, H)."""
        q = self.query(query)  # (..., K, Fq)
        out = self.predictor(torch.cat([m.expand(*q.shape[:-1], m.shape[-1]), q], -1))
        return out if self.kind == "classes" else out.squeeze(-1)

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        return prediction_losses(self.kind, prediction, y)


def prediction_losses(kind: str, prediction: Tensor, y: Tensor) -> Tensor:
    """-log q(y_k | m_t, x_k) per target (eq. 5): cross-entropy, or squared error (a unit-variance Gaussian)."""
    if kind == "classes":
        flat = F.cross_entropy(prediction.flatten(0, -2), y.long().flatten(), reduction="none")
        return flat.view(y.shape)
    return (prediction - y) ** 2
