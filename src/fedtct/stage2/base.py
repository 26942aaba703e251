"""What every stage-2 method is."""

from abc import ABC, abstractmethod

from fedtct.session import Session
from fedtct.tangent import LinearModel, Recipe


class Stage2(ABC):
    """A federated solver of the linear regression on tangent features."""

    noise: float = 0.0  # what a silo adds to its reply, in sensitivities: see fedtct.privacy

    def check(self, session: Session) -> None:  # noqa: B027 (there may be nothing to refuse)
        """Refuse what cannot work with these silos; called before stage 1, so that no work is lost."""

    @abstractmethod
    def run(self, session: Session, recipe: Recipe) -> LinearModel:
        """The linear model and the normaliser of its features."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe of the features that this method works on; by default the one that it is offered."""
        return recipe
