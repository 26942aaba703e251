"""What every stage-2 method is."""

from abc import ABC, abstractmethod

from fedtct.session import Session
from fedtct.tangent import LinearModel, Recipe


class Stage2(ABC):
    """A federated solver of the linear regression on tangent features."""

    noise: float = 0.0  # that a silo adds to what it sends, in sensitivities: see fedtct.privacy

    def check(self, session: Session) -> None:  # noqa: B027 (there may be nothing to refuse)
        """Refuse what cannot work with these silos; called before stage 1, so that no work is lost."""

    @abstractmethod
    def run(self, session: Session, recipe: Recipe) -> LinearModel:
        """The linear model and the normaliser of its features."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """The features that this method works on, if they are not the ones it is offered."""
        return recipe
