"""Views of a job: its event log and its heartbeats, folded for people and for programs.

Commands, TensorBoard files, dashboards and controllers see a job only through this package, so they all say the same.
``reading`` reads a log, ``job_monitor`` follows a running job, ``run_meter`` and ``lost_time`` measure a run. The other
modules are pure functions of the folded state, which give rows for programs and texts for people.

May import ``elasticdl.master.core`` and ``elasticdl.shared``. Must not import a service's shell, NumPy, NATS or a
library that draws on terminals.
"""
