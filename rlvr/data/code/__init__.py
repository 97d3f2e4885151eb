"""Problems that are solved by programs: statements, tests and prompts, as the published data sets have them."""
