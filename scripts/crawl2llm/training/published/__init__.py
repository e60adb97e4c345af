"""Models that somebody else trained: what a folder or a GGUF file of one has to be, and its folder as a run's own models have one."""
