"""Pollux' simulated cluster (OSDI 2021): its workloads and measured traces, its baselines, and ElasticDL's core beside them.

It repeats the rules of the simulator that was published with Pollux (petuum/adaptdl, branch osdi21-artifact): jobs of six
applications on 16 nodes with 4 GPUs, a decision every 60 seconds, and a pause of 30 seconds whenever the GPUs of a job change.
"""

from elasticdl.controller.sim.pollux.data import LOADS, Data
from elasticdl.controller.sim.pollux.run import POLICIES, Outcome, simulate

__all__ = ["LOADS", "POLICIES", "Data", "Outcome", "simulate"]
