"""What people read: live progress, status, reports and event messages. Pure functions of a job's folded state."""
