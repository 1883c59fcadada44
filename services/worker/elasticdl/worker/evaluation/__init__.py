"""Tasks other than training: evaluation on a pinned model, merging of metric states, export."""
