"""ResNet-18 for small images, with the parameter names of torchvision's, so that its weights load as they are."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import interpolate

IMAGENET_LEAST = 128  # pixels: weights that were trained on 224 see little in much smaller images

Norm = Callable[[int], nn.Module]


def batch_norm(channels: int) -> nn.Module:
    """The paper's default normalisation."""
    return nn.BatchNorm2d(channels)


def group_norm(channels: int) -> nn.Module:
    """Two groups, as in the paper's comparison with GroupNorm."""
    return nn.GroupNorm(2, channels)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a short cut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = norm(outputs)
        self.relu = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        result: Tensor = self.relu(out + self.downsample(x))
        return result


class ResNet18(nn.Module):
    """Eighteen layers in four stages of two blocks.

    ``stem="small"`` (3×3, no pooling) suits 32×32 images; ``stem="imagenet"`` (7×7, stride 2, pooling) is
    the one that ImageNet weights were trained with: images that are small for it are scaled up first.
    """

    def __init__(self, channels: int, num_classes: int, norm: Norm, stem: str = "small") -> None:
        super().__init__()
        self.least = 1 if (small := stem == "small") else IMAGENET_LEAST
        self.conv1 = (
            nn.Conv2d(channels, 64, 3, padding=1, bias=False)
            if small
            else nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        )
        self.bn1 = norm(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 1, norm)
        self.layer2 = _stage(64, 128, 2, norm)
        self.layer3 = _stage(128, 256, 2, norm)
        self.layer4 = _stage(256, 512, 2, norm)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        if (shorter := min(x.shape[2:])) < self.least:
            x = interpolate(x, size=[self.least * side // shorter for side in x.shape[2:]], mode="bilinear")
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def _stage(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride, norm), BasicBlock(outputs, outputs, 1, norm))
