"""A new job on Kubernetes: from the flags of ``elasticdl train`` to its objects, and how it starts."""
