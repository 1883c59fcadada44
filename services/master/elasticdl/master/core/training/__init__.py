"""Training: the dispatch window, credits of parameter servers, statistics, and speculative execution. Pure."""
