"""The Kubernetes resource ``TrainingJob``: a job that a controller starts, and resizes while it runs.

``definition`` is the CustomResourceDefinition, ``TrainingJobSpec`` what an object of it asks for, as the options that
all other ways to start a job have. May import ``elasticdl.shared``. Talks to no server, and decides nothing about jobs.
"""

from elasticdl.shared.kubernetes.training_job.spec import RoleSpec, TrainingJobSpec

__all__ = ["RoleSpec", "TrainingJobSpec"]
