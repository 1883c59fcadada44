"""The ring of workers in jobs with AllreduceStrategy: who is in it, and who leads it. Pure.

A worker that is ready says so (``RingMemberReady``). The master forms a *generation*: members in the order of
seniority. The first one leads, and serves the model as ``ps-0``. No timeout decides: a member is in the ring until its
process has ended, it has said that it stops, or its heartbeats are missing.
"""
