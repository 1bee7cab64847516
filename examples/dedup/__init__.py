"""Near-duplicate texts: a worker class that runs as a plain object, in this process and on Ray, with the same loop."""
