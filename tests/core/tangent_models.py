"""Models whose tangent features are tried: one for every rule, and for what no rule covers."""

import torch
import torch.nn.functional as F
from torch import nn


class Convolutions(nn.Module):
    """Everything a convolution can be told, with and without a bias."""

    def __init__(self):
        super().__init__()
        self.strided = nn.Conv2d(2, 4, 3, stride=(2, 1), padding=(1, 0))
        self.grouped = nn.Conv2d(4, 6, (1, 3), groups=2, bias=False)
        self.dilated = nn.Conv2d(6, 4, 2, dilation=(1, 2), padding="valid")
        self.same = nn.Conv2d(4, 4, (4, 3), padding="same", dilation=(1, 2))
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for layer in (self.strided, self.grouped, self.dilated, self.same, self.depthwise):
            x = torch.tanh(layer(x))
        return self.head(x.mean((2, 3)))


class Tokens(nn.Module):
    """Linear layers and LayerNorms over a sequence: parameters that several positions share."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 6)
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 6, bias=False)
        self.over_two = nn.LayerNorm((9, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(torch.tanh(self.embed(x[:, 0])))
        return self.head(self.over_two(x + torch.tanh(self.mix(x))).mean(1))


class Norms(nn.Module):
    """Normalisation of images and of vectors."""

    def __init__(self):
        super().__init__()
        self.images = nn.BatchNorm2d(2)
        self.groups = nn.GroupNorm(1, 2)
        self.inner = nn.Linear(144, 5)
        self.vectors = nn.BatchNorm1d(5)
        self.vector_groups = nn.GroupNorm(5, 5, affine=True)
        self.layer = nn.LayerNorm(5)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        x = self.vectors(self.inner(torch.tanh(self.groups(self.images(x))).flatten(1)))
        return self.head(self.layer(torch.tanh(x)))


class Residual(nn.Module):
    """A branch that nothing uses, a parameter no logit but the second depends on, and a sum of paths."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3)
        self.unused = nn.Linear(3, 3)
        self.left, self.right = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 3, padding=1)
        self.second_logit = nn.Linear(3, 1)
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = (self.left(x) * torch.sigmoid(self.right(x)) + x).mean((2, 3))
        return torch.cat([self.head(x), self.second_logit(x)], 1)


class SharedParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(144, 144), nn.Linear(144, 144), nn.Linear(144, 2)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.head(torch.tanh(self.two(torch.tanh(self.one(x.flatten(1))))))


class CalledTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.conv(torch.tanh(self.conv(x)))).mean((2, 3)))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu, self.head = (
            nn.Conv2d(2, 3, 3),
            nn.BatchNorm2d(3),
            nn.ReLU(inplace=True),
            nn.Linear(3, 2),
        )

    def forward(self, x):
        return self.head(self.relu(self.norm(self.conv(x))).mean((2, 3)))


class WritesOver(InPlace):
    """A function writes over what a layer gave."""

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu_().mean((2, 3)))


class SeenInPlace(InPlace):
    """A layer writes over what is seen again."""

    def forward(self, x):
        x = self.norm(self.conv(x))
        return self.head((self.relu(x) + x).mean((2, 3)))


class FunctionalUse(nn.Module):
    """The head's weight serves a second time, where no hook can see it."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(144, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = torch.tanh(self.inner(x.flatten(1)))
        return self.head(x) + F.linear(x.square(), self.head.weight).square().sum(1, keepdim=True)


class RareFunctionalUse(nn.Module):
    """As above, but only where the first pixel is positive: the first sample does not show it."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(144, 4), nn.Linear(4, 4)

    def forward(self, x):
        shown = F.relu(x.flatten(1)[:, :1])
        x = torch.tanh(self.inner(x.flatten(1)))
        return self.head(x) + shown * F.linear(x.square(), self.head.weight).square().sum(1, keepdim=True)


class OwnParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.randn(144)), nn.Linear(144, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.scale * x.flatten(1)))


class ReflectedPadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.conv(x)).mean((2, 3)))


class Words(nn.Module):
    """Embeddings: shared by positions, with a word that is padding, and of a single word a sample."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 5)
        self.padded = nn.Embedding(7, 5, padding_idx=2)
        self.first = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        x = torch.tanh(self.words(x) * self.padded(x)).mean((1, 2)) + torch.tanh(self.first(x[:, 0, 0]))
        return self.head(x)


class Depends(nn.Module):
    """What is computed depends on the sample's values, which torch.func does not follow."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(144, 2)

    def forward(self, x):
        return self.head(torch.stack([s * s if s[0, 0, 0] > 0 else s for s in x]).flatten(1).cumsum(1)) * self.scale

    @property
    def scale(self):
        return self.head.weight.mean()


class Sorts(nn.Module):
    """Takes samples in another order than they come in, and gives its answers in theirs."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        order = x[:, 0].argsort()
        return self.head(self.body(x[order]).tanh()[order.argsort()])


BY_LAYERS = [Convolutions, Tokens, Norms, Residual, SharedParameter, CalledTwice, InPlace]
HIDDEN_USE = [FunctionalUse, RareFunctionalUse, SeenInPlace]
BY_FUNC = [WritesOver, *HIDDEN_USE, OwnParameter, ReflectedPadding]
