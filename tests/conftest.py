"""For all tests: hypothesis asserts no times, because a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("elasticdl", deadline=None, print_blob=True)
settings.load_profile("elasticdl")
