"""Moving groups between parameter servers: the donor copies them, the recipient loads and holds them."""
