"""The scheduling of a cluster that several jobs share: a pure core, the controller around it, and a simulator.

``core`` decides how many workers and ps each job has and on which nodes. ``service`` is the controller: it does that on
Kubernetes with the code of the command line. ``sim`` runs the core against modelled jobs. Core and simulator may import
``elasticdl.shared``, and must not import the command line, the other services or Kubernetes.
"""
