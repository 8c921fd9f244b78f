"""The first environment: a video as a tree of described moments, its search index and its tools."""
