"""The end of a job: final snapshots, audit, final evaluation and export, or an early stop. Pure."""
