//! Compile-time tests of the attribute; see `ui.rs`.
