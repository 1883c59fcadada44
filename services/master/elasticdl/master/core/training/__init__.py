"""Training: dispatching tasks, crediting parameter servers, and speculative execution of slow tasks. Pure."""
