"""Kubernetes: a small client of its API, the names of a job's objects, and the files that a job's pods read.

Used by the master of a job on a cluster, and by the commands of the client. May import ``elasticdl.shared``; only the
module ``api`` may import the package ``kubernetes``, which the extra ``elasticdl[kubernetes]`` installs. Must not
decide which pods there are.
"""
