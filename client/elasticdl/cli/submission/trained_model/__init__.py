"""The submission of jobs that evaluate a trained model or predict with it; see ``elasticdl.cli.submission``."""
