"""Object storage, with servers that the tests start themselves."""
