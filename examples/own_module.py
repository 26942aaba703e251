"""A network of one's own, with GroupNorm and depthwise convolutions, on pictures of digits: FedAvg and TCT.

In Python: python own_module.py. On the command line: fedtct run --dataset digits --model own_module:build
"""

from torch import nn

import fedtct


def build(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Two separable convolutions: each channel by itself, then all of them pixel by pixel."""

    def block(channels: int, wider: int) -> list[nn.Module]:
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        return [depthwise, nn.Conv2d(channels, wider, 1), nn.GroupNorm(4, wider), nn.ReLU()]

    channels, height, width = shape
    stem = [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU()]
    head = [nn.Flatten(), nn.Linear(64 * (height // 2) * (width // 2), outputs)]
    return nn.Sequential(*stem, *block(16, 32), nn.MaxPool2d(2), *block(32, 64), *head)


def main() -> None:
    """Ten silos that know two digits each."""
    data = fedtct.load_dataset("digits")
    x, y = data.train
    silos = [(x[part], y[part]) for part in fedtct.partition(y, silos=10, split="classes:2", seed=0)]
    stages = {"stage1": fedtct.FedAvg(rounds=5, local_epochs=1), "stage2": fedtct.Ridge(d=512)}
    *_, fedavg, tct = fedtct.TCT(build, **stages).fit(silos, test=data.test).history
    print(f"FedAvg {fedavg.test_accuracy:.1%}, TCT {tct.test_accuracy:.1%}")


if __name__ == "__main__":
    main()
