//! The fuzz targets, of which `FUZZ_TARGET` names one. `ci/fuzz` builds and runs them.
#![no_main]

use std::sync::LazyLock;

// A crate of macros exports nothing else, so that its files are here a second time.
#[path = "../../redlock-macros/src/args/mod.rs"]
mod args;
#[path = "../../redlock-macros/src/fuzz_text.rs"]
mod attribute;
#[path = "../../redlock-macros/src/check/mod.rs"]
mod check;
#[path = "../../redlock-macros/src/duration.rs"]
mod duration;
#[path = "../../redlock-macros/src/errors.rs"]
mod errors;
#[path = "../../redlock-macros/src/expand/mod.rs"]
mod expand;
#[path = "../../redlock-macros/src/form.rs"]
mod form;
#[path = "../../redlock-macros/src/function.rs"]
mod function;
#[path = "../../redlock-macros/src/messages.rs"]
mod messages;
#[path = "../../redlock-macros/src/plan.rs"]
mod plan;
#[path = "../../redlock-macros/src/template.rs"]
mod template;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET");
    let mut all = redlock_rt::fuzz::TARGETS.into_iter();
    all.find(|(known, _)| *known == name)
        .map_or(attribute::any_text_is_expanded, |(_, target)| target)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
