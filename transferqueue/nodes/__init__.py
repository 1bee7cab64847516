"""What nodes say to each other: messages, calls, the directory of nodes, and the transport of payload.

Nothing here knows the client. pyarrow (Flight) is imported when the first connection or server is made.
"""
