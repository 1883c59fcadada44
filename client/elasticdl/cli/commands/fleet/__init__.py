"""The commands of ``elasticdl fleet``."""
