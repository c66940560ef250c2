"""The servers, services and plugins that a benchmark can speak to."""
