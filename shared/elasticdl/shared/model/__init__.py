"""What workers and ps both know of a model: signature, partitions, placement and the manifests of its snapshots."""
