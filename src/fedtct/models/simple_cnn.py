"""SimpleCNN: two 5×5 convolutions with max-pooling, then two fully connected layers."""

from torch import Tensor, nn

from fedtct.errors import FedtctError

SMALLEST_SIDE = 16


class SimpleCNN(nn.Module):
    """The paper's network for Fashion-MNIST: 32 and 64 channels, 512 hidden units (582,026 parameters there).

    Pooling comes before the ReLU: the two commute, and the ReLU then sees a quarter of the values.
    """

    def __init__(self, channels: int, height: int, width: int, num_classes: int) -> None:
        super().__init__()
        if min(height, width) < SMALLEST_SIDE:
            raise FedtctError(
                f"simple-cnn needs images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, these are "
                f"{height}×{width}. Use model 'mlp' for small images."
            )
        self.conv1 = nn.Conv2d(channels, 32, 5)
        self.conv2 = nn.Conv2d(32, 64, 5)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        pooled = ((height - 4) // 2 - 4) // 2 * (((width - 4) // 2 - 4) // 2)
        self.fc1 = nn.Linear(64 * pooled, 512)
        self.fc2 = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.relu(self.pool(self.conv1(x)))
        x = self.relu(self.pool(self.conv2(x)))
        logits: Tensor = self.fc2(self.relu(self.fc1(x.flatten(1))))
        return logits
