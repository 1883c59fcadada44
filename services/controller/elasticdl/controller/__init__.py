"""The scheduling of a cluster that several jobs share: a pure core, and a simulator around it.

There is no controller process yet. ``core`` decides how many workers and ps each job has and on which nodes, and
``sim`` runs it against modelled jobs. May import ``elasticdl.shared``. Must not import the command line, the other
services or Kubernetes.
"""
