//! Plans that once broke a rule, as small as they could be made.
