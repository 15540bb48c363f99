"""Learning: parameters, objectives, starts, search, stages and progress."""
