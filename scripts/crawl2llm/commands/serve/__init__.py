"""Talk to a run's models: an endpoint as OpenAI's on this machine, a page to chat in, and texts on the terminal."""
