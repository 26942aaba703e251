"""The silos one can ask, in this process or elsewhere."""

from fedtct.federation.base import Cost, Federation, Replies, weighted_sum
from fedtct.federation.local import LocalFederation

__all__ = ["Cost", "Federation", "LocalFederation", "Replies", "weighted_sum"]
