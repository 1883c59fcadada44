"""Jobs on Kubernetes: what the client creates there, how commands reach a job, and the container that submits it.

``manifests`` turns flags into objects and is pure. ``submit`` runs in the job's own pod. The rest uses the API server
through ``elasticdl.shared.kubernetes``. While that can't be reached, functions raise ``TransientError``. See ADR 24.

May import ``elasticdl.*`` as other modules of the command line do. Must not import TensorFlow or ``kubernetes``.
"""
