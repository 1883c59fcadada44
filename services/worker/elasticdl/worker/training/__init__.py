"""The training loop: leased tasks, batch order, prefetch, pushes and task outcomes."""
