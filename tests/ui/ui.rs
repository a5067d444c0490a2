//! What the attribute says to mistakes, one a function in `fail`: a file for those that the compiler finds
//! at one time; what it must not complain about is in `pass`, as test targets of their own.
//!
//! The `.stderr` files are those of Rust 1.95; another compiler words its own
//! part differently. `TRYBUILD=overwrite cargo test -p ui` writes them anew: read what has changed.
//! Our own messages are tested without a compiler too, in `redlock-macros`.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    // Failing cases alone: with one that passes among them, trybuild links them, one cargo each.
    cases.compile_fail("fail/*.rs");
}
