"""The recipe: YAML, schema, overrides, batch plan. No torch."""
