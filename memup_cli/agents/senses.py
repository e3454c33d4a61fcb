"""What a trained memory lends to an agent besides its state: its eyes for images, and its predictor's outlook."""

import torch
from torch import Tensor, nn

from ..errors import UsageProblem
from ..memory.cells import State, Step, prepared
from ..memory.encoders import FieldEncoder
from ..memory.images import SIZE
from ..predictor.predictor import MemoryModel
from ..tasks.spec import TaskSpec

OBSERVATION = "observation"


class Eyes(nn.Module):
    """Images as a memory sees them: as its input, and as the query of a target; frozen."""

    size = 2 * SIZE

    def __init__(self, memory: MemoryModel) -> None:
        super().__init__()
        encoders = (memory.inputs, memory.context.query)
        self.encoders = nn.ModuleList([encoder.images[OBSERVATION] for encoder in encoders]).requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([encoder(images) for encoder in self.encoders], -1)


class SeenInputs(nn.Module):
    """The memory's input from what its eyes saw, and from the other fields as they are."""

    def __init__(self, spec: TaskSpec, names: tuple[str, ...]) -> None:
        super().__init__()
        assert names[0] == OBSERVATION
        self.names = names
        self.others = FieldEncoder(spec, names[1:])
        self.size = SIZE + self.others.size

    def forward(self, arrays: dict[str, Tensor]) -> Tensor:
        seen = arrays[OBSERVATION][..., :SIZE]
        return torch.cat([seen, self.others(arrays)], -1) if self.names[1:] else seen


class OutlookInputs(nn.Module):
    """The memory's input, and after it the observation as the predictor's query has it."""

    def __init__(self, spec: TaskSpec, memory: MemoryModel, inputs: FieldEncoder | SeenInputs) -> None:
        super().__init__()
        self.names, self.inputs = inputs.names, inputs
        self.query = None if isinstance(inputs, SeenInputs) else FieldEncoder(spec, spec.observed)
        if self.query and self.query.images:
            self.query.images = nn.ModuleDict({name: memory.context.query.images[name] for name in self.query.images})
        self.size = inputs.size + (self.query.size if self.query else SIZE)
        first = inputs.names[: len(spec.observed)]
        sees_first = first == spec.observed and self.query is not None and not self.query.images
        self._first = self.query.size if self.query and sees_first else 0  # of the inputs: the observation as it is
        asks = memory.context.query
        if self.query and asks.units is not None:  # those of the observation, which comes first
            self.query.units = asks.units.first(self.query.size)

    def forward(self, arrays: dict[str, Tensor]) -> Tensor:
        inputs = self.inputs(arrays)
        if self._first and self.query:
            asked = inputs[..., : self._first]
            asked = asked if self.query.units is None else self.query.units(asked)
        else:
            asked = self.query(arrays) if self.query else arrays[OBSERVATION][..., SIZE:]
        return torch.cat([inputs, asked], -1)


class Outlook(nn.Module):
    """A frozen memory whose state is followed by the return that its predictor expects of each action."""

    actions: Tensor

    def __init__(self, spec: TaskSpec, memory: MemoryModel) -> None:
        super().__init__()
        count = spec.classes.get("action", 0)
        if not (memory.context.alone and spec.query == (*spec.observed, "action") and count):
            raise UsageProblem(
                "--outlook asks the predictor about each action at the step at hand: it needs numbered actions and a "
                "memory that was trained with --context point. Without, use --no-outlook."
            )
        self.memory, self.predictor, self._inputs = memory.memory, memory.predictor, memory.inputs.size
        self.register_buffer("actions", torch.eye(count), persistent=False)
        self.size = self.memory.size + count
        self.widest = 2 * count * memory.predictor.memory.out_features  # of the layers, for each step

    def initial(self, batch: int) -> State:
        state: State = self.memory.initial(batch)
        return state

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """What OutlookInputs gives (B, r, ...) -> (B, r, size), and the memory's state after."""
        m, state = self.memory(x[..., : self._inputs], state)
        asked = x[..., self._inputs :].unsqueeze(-2).expand(*x.shape[:-1], len(self.actions), -1)
        c = torch.cat([asked, self.actions.expand(*asked.shape[:-1], -1)], -1)  # (B, r, A, C)
        return torch.cat([m, self.predictor(m.unsqueeze(-2), c)[..., 0]], -1), state

    def prepared(self) -> Step:
        """A single step, for many calls with the same weights."""
        remember, promise, inputs = prepared(self.memory), self.predictor.prepared(self.actions), self._inputs

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            m, state = remember(x[:, :inputs], state)
            return torch.cat([m, promise(m, x[:, inputs:])], -1), state

        return step
