"""A ps' shard of the model and its decisions: admission, groups, ledgers and cuts.

No sockets, no clock, no storage.
"""
