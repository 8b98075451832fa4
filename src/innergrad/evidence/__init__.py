"""What is known of a compiled transformer: certificates, laws, attacks, explanations."""
