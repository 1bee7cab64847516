"""How payload goes from one node's store into another's: a protocol, and Arrow Flight as one way to keep it."""
