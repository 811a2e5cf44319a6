"""Tables of Tiresias."""
