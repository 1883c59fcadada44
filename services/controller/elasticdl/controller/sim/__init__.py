"""A simulated cluster: discrete events around the scheduling core, or around another policy beside it.

Jobs are modelled by measured times and by a throughput curve. A plain scheduler places the pods of services. The same
scenario, policy and seed give the same result.
"""

from elasticdl.controller.sim.measures import Result
from elasticdl.controller.sim.run import POLICIES, simulate
from elasticdl.controller.sim.scenario import Published, Scenario, load, read, shipped

__all__ = ["POLICIES", "Published", "Result", "Scenario", "load", "read", "shipped", "simulate"]
