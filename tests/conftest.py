"""What all tests share."""

from hypothesis import settings

# A deadline for each example measures the machine, not the code. `--hypothesis-profile thorough` searches longer.
settings.register_profile("treadle", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("treadle")
