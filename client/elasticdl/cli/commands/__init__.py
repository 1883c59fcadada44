"""The commands of ``elasticdl``: each module parses one command's options and calls the packages that do the work."""
