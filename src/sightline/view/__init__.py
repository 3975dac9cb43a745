"""Pictures of attention. Sees plain records, never a model."""
