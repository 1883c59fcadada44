"""Moving groups between parameter servers: copies by the donor, loading by the recipient."""
