"""What a session does, for Prometheus: read when it is scraped, out of counters that all its processes share."""
