"""Models to give away: as a folder for the Hugging Face Hub, and as GGUF files for llama.cpp."""
