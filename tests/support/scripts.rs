//! Recognises calls of our scripts at the proxy.

use std::fs;

use crate::Matcher;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../redlock-rt/src/wire/lua");

/// The calls of a script of the crate, by the name of its file.
pub fn calls(name: &str) -> Matcher {
    let text = text(name);
    let prelude = text
        .lines()
        .find_map(|line| line.strip_prefix("-- Prelude: "));
    let preludes = prelude.into_iter().flat_map(|names| names.split(", "));
    let sent: String = preludes.map(self::text).collect();
    let sha = sha1_smol::Sha1::from(sent + &text).digest().to_string();
    Matcher::command("EVALSHA").mentioning(sha)
}

fn text(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}.lua")).expect("the crate has a script of this name")
}
