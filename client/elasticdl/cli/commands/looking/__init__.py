"""Commands that look into the event log of a job: thin presentations of ``elasticdl.views``."""
