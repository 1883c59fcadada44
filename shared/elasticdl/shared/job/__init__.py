"""What a job is: its specification, its plan of training tasks, and the ledger of what was trained.

Pure values. Must not import NumPy, sockets or any service.
"""
