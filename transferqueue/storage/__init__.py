"""A session's names, segments, lock and life on one node."""
