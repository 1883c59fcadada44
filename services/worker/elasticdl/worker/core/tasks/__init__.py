"""The tasks that a worker has: how many it takes, which of them are leased, and how they end."""
