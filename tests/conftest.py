"""What all tests share."""

from hypothesis import settings

# A deadline for each example measures the machine, not the code.
settings.register_profile("treadle", deadline=None)
settings.load_profile("treadle")
