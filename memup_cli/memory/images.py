"""Images -> features: bytes in memory and on the bus, numbers from 0 to 1 only on the device."""

import torch
from torch import Tensor, nn

from .standard import Standard

SIZE = 128  # features of an image
SLICE = 512  # images at a time where no gradients are kept; their layers are far larger than they


class ImageEncoder(nn.Module):
    """Three convolutions and a linear layer, as is usual for small game screens (Mnih et al. 2015), but smaller."""

    def __init__(self, shape: tuple[int, ...], standard: bool = False) -> None:
        super().__init__()
        height, width, channels = shape
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 16, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            places = self.convolutions(torch.zeros(1, channels, height, width)).shape[1]
        self.linear = nn.Sequential(nn.Linear(places, SIZE), nn.ReLU())
        self.standard = Standard(channels) if standard else None

    def forward(self, images: Tensor) -> Tensor:
        """(..., H, W, C) bytes -> (..., SIZE), all of them in one pass."""
        flat = images.flatten(0, -4)  # (N, H, W, C)
        parts = [flat] if torch.is_grad_enabled() else flat.split(SLICE)
        features = torch.cat([self.linear(self.convolutions(self._seen(part))) for part in parts])
        return features.unflatten(0, images.shape[:-3])

    def _seen(self, images: Tensor) -> Tensor:
        """(N, H, W, C) bytes -> (N, C, H, W), from 0 to 1 or in units of how much a channel varies."""
        seen = images.float() / 255 if self.standard is None else self.standard(images.float())
        return seen.permute(0, 3, 1, 2)
