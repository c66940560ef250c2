"""The settings of a server by subject; `config` reads them from the environment and files."""
