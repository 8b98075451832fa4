"""Evidence about a compiled transformer: certificates, laws, attacks, explanations."""
