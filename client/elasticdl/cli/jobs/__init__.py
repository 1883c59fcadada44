"""The jobs on this machine: their run directories and their event logs."""
