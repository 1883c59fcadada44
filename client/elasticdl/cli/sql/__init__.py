"""``elasticdl sql``: scripts and the interactive shell, how they show what statements do, and how they run jobs."""
