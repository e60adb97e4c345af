"""What a person sees of a run: one live screen, or few lines without a terminal, and a failure as the last words.

`attach` puts a handler of its own in the place of Snakemake's. It is no installed logger plugin: a profile that names a plugin
fails where the plugin is absent, as in an environment with Snakemake alone, and a clone of the project brings this one along.
"""
