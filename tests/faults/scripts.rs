//! Which script a frame at the proxy calls.

use tests::Matcher;

/// The calls of a script of the crate, by the name of its file.
macro_rules! calls {
    ($name:literal) => {
        $crate::scripts::calls_of(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../redlock-rt/src/wire/lua/",
            $name,
            ".lua"
        )))
    };
}
pub(crate) use calls;

/// EVALSHA of the script with this text, and those of its preludes before it.
pub(crate) fn calls_of(text: &str) -> Matcher {
    let prelude = text
        .lines()
        .find_map(|line| line.strip_prefix("-- Prelude: "));
    let preludes = prelude.into_iter().flat_map(|names| names.split(", "));
    let preludes = preludes.map(|name| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../redlock-rt/src/wire/lua");
        std::fs::read_to_string(format!("{folder}/{name}.lua")).unwrap()
    });
    let prelude: String = preludes.collect();
    let sha = sha1_smol::Sha1::from(prelude + text).digest().to_string();
    Matcher::command("EVALSHA").mentioning(sha)
}
