"""The libraries that are compared, each in a process of its own, ours among them."""
