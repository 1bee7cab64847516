"""What a node does for the others of its cluster: calls of partitions whose home it is, and payload that it keeps."""
