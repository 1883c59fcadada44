"""What a run of a job achieves and uses, measured from its records and heartbeats.

The launcher measures jobs on one machine, the master those on a cluster. May import ``elasticdl.master.core`` and
``elasticdl.shared``. Pure: no I/O and no clock.
"""
