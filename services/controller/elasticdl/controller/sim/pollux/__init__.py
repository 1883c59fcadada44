"""Pollux' simulated cluster (OSDI 2021): its workloads and measured traces, its baselines, and ElasticDL's core.

It repeats the rules of the simulator that was published with Pollux (petuum/adaptdl, branch osdi21-artifact): jobs of
six applications on 16 nodes with 4 GPUs, a decision every 60 seconds, and a pause of each job whose GPUs have changed.
"""

from elasticdl.controller.sim.pollux.data import LOADS, Data
from elasticdl.controller.sim.pollux.run import POLICIES, Cluster, Outcome

__all__ = ["LOADS", "POLICIES", "Cluster", "Data", "Outcome"]
