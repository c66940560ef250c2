"""Every measurement worth making on a GPU, in one short run."""
