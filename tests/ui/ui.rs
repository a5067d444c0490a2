//! What the attribute says to mistakes, one a file in `fail`, and what it must not complain about,
//! in `pass`.
//!
//! The `.stderr` files are those of Rust 1.95; another compiler words its own
//! part differently. `TRYBUILD=overwrite cargo test -p ui` writes them anew: read what has changed.
//! Our own messages are tested without a compiler too, in `redlock-macros`.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("pass/*.rs");
    cases.compile_fail("fail/*.rs");
}
