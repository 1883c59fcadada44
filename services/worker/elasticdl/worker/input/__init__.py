"""Input: reading records, feeding them through the user's code, and finding embedding ids."""
