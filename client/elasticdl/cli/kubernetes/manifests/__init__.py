"""The objects of a job on Kubernetes, as plain dicts, from the values of flags.

Pure: no I/O, no clock, no randomness, no environment.
"""
