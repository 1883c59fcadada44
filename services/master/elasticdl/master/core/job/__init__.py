"""The job as a whole: submission, resume, requests of its user, and why it failed. Pure."""
