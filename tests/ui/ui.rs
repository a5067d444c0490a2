//! One mistake a file.
