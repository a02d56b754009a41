"""Object storage on servers that the tests start themselves."""
