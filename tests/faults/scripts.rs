//! Which script a frame at the proxy calls.

/// The calls of a script of the crate, by the name of its file.
macro_rules! calls {
    ($name:literal) => {
        tests::calls($name)
    };
}
pub(crate) use calls;
