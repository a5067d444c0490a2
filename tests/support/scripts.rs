//! Recognises calls of our scripts at the proxy.

use std::fs;

use crate::{CALL, Matcher};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../redlock-rt/src/wire/lua");

/// The calls of a script of the crate, by the name of its file, also by the plain command in its place.
pub fn calls(name: &str) -> Matcher {
    let text = text(name);
    let prelude = text
        .lines()
        .find_map(|line| line.strip_prefix("-- Prelude: "));
    let preludes = prelude.into_iter().flat_map(|names| names.split(", "));
    let sent: String = preludes.map(self::text).collect();
    let sha = sha1_smol::Sha1::from(sent + &text).digest().to_string();
    let plain = match name {
        "rlock_acquire" => "RESTORE",
        "rlock_release" | "spin_release" => "HDEL",
        _ => "",
    };
    Matcher::command(CALL).and(move |frame| frame.command() == plain || frame.mentions(&sha))
}

fn text(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}.lua")).expect("the crate has a script of this name")
}
