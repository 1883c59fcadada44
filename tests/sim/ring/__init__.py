"""A simulator of rings: cores of up to four members, an in-memory network, a toy state and a toy master.

``python -m tests.sim.ring`` runs schedules by seed; ``test_ring.py`` runs deaths at every point, and the mutations.
"""
