"""No test fails for being slow: the first example of a law loads what it needs, on a machine that others use too."""

from hypothesis import settings

settings.register_profile("fedtct", deadline=None)
settings.load_profile("fedtct")
