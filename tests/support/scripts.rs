//! Recognises calls of our scripts at the proxy.

use std::fs;

use crate::{CALL, Matcher};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../redlock-rt/src/wire/lua");

/// The calls of a script of the crate, by the name of its file, also by the plain command in its place.
pub fn calls(name: &str) -> Matcher {
    let sha = sha1_smol::Sha1::from(script_text(name))
        .digest()
        .to_string();
    let plain = match name {
        "rlock_acquire" => "RESTORE",
        "rlock_release" => "HDEL",
        _ => "",
    };
    Matcher::command(CALL).and(move |frame| frame.command() == plain || frame.mentions(&sha))
}

/// The text of a script of the crate as the server gets it, with its preludes.
pub fn script_text(name: &str) -> String {
    let text = text(name);
    let prelude = text
        .lines()
        .find_map(|line| line.strip_prefix("-- Prelude: "));
    let preludes = prelude.into_iter().flat_map(|names| names.split(", "));
    preludes.map(self::text).collect::<String>() + &text
}

fn text(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}.lua")).expect("the crate has a script of this name")
}
