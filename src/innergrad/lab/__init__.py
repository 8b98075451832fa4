"""The lab: pretrain transformers on families of functions and measure them. task -> learner -> train -> evaluate."""
