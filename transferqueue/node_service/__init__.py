"""What a node of a session that spans several does for the others, and the process that does it."""
