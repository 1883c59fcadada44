"""Recovery of a job whose event log is lost, from its snapshots."""
