"""Trains a model by PyTorch's DistributedDataParallel on Gloo. Started by ``benchmarks/strategies.py``.

    PYTHON benchmarks/peers/torch_ddp.py KIND DATA BATCH COUNTER RANK PORT SIZE

PYTHON has PyTorch; nothing of ElasticDL or TensorFlow is needed. The models are the twins of ``keras_models.py``.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
counter = importlib.import_module("counter")
torch = importlib.import_module("torch")
nn = torch.nn
CLASSES, WORDS, PLACES, WIDTH, HEADS, BLOCKS = 10, 4000, 64, 128, 4, 2


def mlp() -> Any:
    """Three hidden layers of 400 units."""
    layers: list[Any] = []
    for width in (429, 400, 400):
        layers += [nn.Linear(width, 400), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(400, CLASSES))


class Residual(nn.Module):  # type: ignore[misc,name-defined]
    """Two convolutions of ResNet-20, and what goes past them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolved(before, width, stride), convolved(width, width)
        self.past = convolved(before, width, stride, size=1) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        """Of images (batch, channels, height, width)."""
        return torch.relu(self.second(torch.relu(self.first(x))) + self.past(x))


def convolved(before: int, width: int, stride: int = 1, size: int = 3) -> Any:
    """A convolution, normalised."""
    return nn.Sequential(nn.Conv2d(before, width, size, stride, size // 2, bias=False), nn.BatchNorm2d(width))


def resnet20() -> Any:
    """ResNet-20; images come as (batch, height, width, channels)."""
    blocks, before = [], 16
    for width in (16, 32, 64):
        for block in range(3):
            blocks.append(Residual(before, width, 2 if block == 0 and width > 16 else 1))
            before = width
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)]
    return nn.Sequential(convolved(3, 16), nn.ReLU(), *blocks, *ends)


class Transformer(nn.Module):  # type: ignore[misc,name-defined]
    """Two blocks of attention over 64 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(0.1 * torch.randn(PLACES, WIDTH))
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, BLOCKS)
        self.scores = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        """Of word numbers (batch, places)."""
        return self.scores(self.blocks(self.words(x) + self.places).mean(1))


def main() -> None:
    kind, data, batch_text, path, rank, port, size = sys.argv[1:]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", rank=int(rank), world_size=int(size))
    model = {"mlp": mlp, "resnet20": resnet20, "transformer": Transformer}[kind]()
    if kind == "resnet20":
        model = model.to(memory_format=torch.channels_last)
    optimizer = (
        torch.optim.Adam(model.parameters(), 1e-3)
        if kind == "transformer"
        else torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    )
    replica = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    arrays, batch = np.load(data), int(batch_text)
    features, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["label"])
    counted, random = counter.Counter(Path(path)), torch.Generator().manual_seed(int(rank))
    while True:
        for chosen in torch.randperm(len(labels), generator=random).split(batch):
            x = features[chosen]
            if kind == "resnet20":
                x = x.permute(0, 3, 1, 2)  # The arrays are in the order of channels_last.
            loss = nn.functional.cross_entropy(replica(x), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            counted.add()


if __name__ == "__main__":
    main()
