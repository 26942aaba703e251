"""Text-like input: made-up sentences of word numbers, an embedding, attention, and three topics.

python tokens.py
"""

import torch
from torch import Tensor, nn

import fedtct

WORDS, LENGTH, TOPICS = 60, 12, ["music", "sport", "weather"]


class Reader(nn.Module):
    """Words to vectors, one layer of attention, the mean over the sentence."""

    def __init__(self, outputs: int, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of sentences (N, length) of word numbers."""
        return self.head(self.layer(self.words(x)).mean(1))


def sentences(count: int, topics: list[int], seed: int) -> tuple[Tensor, list[str]]:
    """A third of the words come from the topic's own ten, the rest from the other thirty."""
    draws = torch.Generator().manual_seed(seed)
    topic = torch.tensor(topics)[torch.randint(len(topics), (count,), generator=draws)]
    common = torch.randint(30, WORDS, (count, LENGTH), generator=draws)
    own = 10 * topic[:, None] + torch.randint(10, (count, LENGTH), generator=draws)
    chosen = torch.rand(count, LENGTH, generator=draws) < 1 / 3
    return torch.where(chosen, own, common), [TOPICS[k] for k in topic]


def main() -> None:
    """Three silos, each of which knows two of the three topics."""
    silos = [sentences(150, topics, seed) for seed, topics in enumerate([[0, 1], [1, 2], [0, 2]])]
    test = sentences(300, [0, 1, 2], seed=9)
    method = fedtct.TCT(
        lambda shape, outputs: Reader(outputs), fedtct.FedAvg(rounds=4, local_epochs=3), stage2=fedtct.Ridge(d=512)
    )
    fit = method.fit(silos, test=test)
    print(f"classes {', '.join(fit.model.classes)}: {fit.model.score(*test):.1%}")
    print(fit.model.predict(test[0][:3]))


if __name__ == "__main__":
    main()
