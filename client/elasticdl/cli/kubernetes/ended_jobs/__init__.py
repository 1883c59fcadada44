"""Jobs on Kubernetes that have ended: how they continue, and how their models are exported."""
