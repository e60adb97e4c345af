"""`crawl2llm gpu-check`: what a machine's GPUs can do, measured before a training spends hours on them."""
