//! Steps of the time of day of a child process. Its other clocks go on as they are.
//!
//! A library of our own, since libfaketime and the allocator of Debian's Redis wait for each other.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::reaper;

/// Whether clocks can be stepped here: on Linux, with a C compiler.
pub fn has_clocks() -> bool {
    library().is_some()
}

/// Gives a process that is not started yet a clock of its own in this file, where that is possible.
pub fn with_clock(command: &mut Command, file: &Path) {
    if let Some(library) = library() {
        fs::write(file, [0]).expect("the directory is writable");
        command.env("LD_PRELOAD", library).env("CLOCK_STEP", file);
    }
}

/// From now on, the clock of the process with this file is ahead by so many seconds.
pub fn step_clock(file: &Path, seconds: i8) {
    let opened = File::options().write(true).open(file);
    let written = opened.and_then(|opened| opened.write_all_at(&seconds.to_ne_bytes(), 0));
    written.unwrap_or_else(|error| panic!("no process has the clock {}: {error}", file.display()));
}

fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let directory = reaper::directory("clock").keep();
        let (source, library) = (directory.join("step.c"), directory.join("step.so"));
        fs::write(&source, include_str!("step.c")).ok()?;
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&library);
        let built = compiler
            .arg(&source)
            .status()
            .is_ok_and(|status| status.success());
        (built && cfg!(target_os = "linux")).then_some(library)
    };
    LIBRARY.get_or_init(build).as_deref()
}
