"""The controller: it sees a cluster and its TrainingJobs, asks the core what each job should have, and does it.

``informer``      the objects of one kind, kept up to date on a thread
``observing``     nodes and pods as the core sees them; pure
``placement``     what pods demand of their node; pure
``quotas``        queues, as a ConfigMap has them; pure
``job_log``       what the event logs of the jobs say
``measuring``     throughput by number of workers, and the load of ps; pure
``lifecycle``     what is to be done for one TrainingJob; pure
``status``        its status, as people read it; pure
``metrics``       what Prometheus reads; pure
``steps``         does it: creates Jobs, asks masters to scale or stop, resumes
``controller``    the loop
``leadership``    one controller at a time
"""
