//! A pseudo-terminal, with a program that has it as its controlling terminal.

use std::{
    ffi::OsStr,
    fs::File,
    future::ready,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tests::{ChildProcess, DEADLINE, eventually};

/// A program at a terminal. What it is typed is echoed, as by any terminal.
pub(crate) struct Terminal {
    process: ChildProcess,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts the program in a session of its own, at a terminal of 140 columns.
    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 30,
            ws_col: 140,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let slave = ptsname(&master, Vec::new()).unwrap();
        let slave = OsStr::from_bytes(slave.as_bytes()).to_owned();
        // Opened before the program runs: without any open end there is no terminal to read from.
        let held = File::options().read(true).write(true).open(&slave).unwrap();

        let script = r#"exec setsid --ctty env --default-signal "$@" <"$TTY" >"$TTY" 2>&1"#;
        let all = [&["-c", script, "terminal"], arguments].concat();
        let process = ChildProcess::spawn("sh", all, |command| {
            command
                .env("TTY", &slave)
                .env("REDIS_URL", url)
                .env("TERM", "xterm")
                .env("PS1", "$ ");
        });
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        // Ends with the terminal: reading from it fails then.
        thread::spawn(move || {
            let _held = held;
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self {
            process: process.unwrap(),
            keyboard,
            screen,
        }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this has been shown as many times.
    pub(crate) async fn shows(&self, text: &str, times: usize) {
        eventually(DEADLINE, || {
            let shown = self.shown();
            ready(match shown.matches(text).count() >= times {
                true => Ok(()),
                false => Err(format!("{text:?} is not shown: …{:?}", last_of(&shown))),
            })
        })
        .await;
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// The number that is shown behind this word.
    pub(crate) async fn number(&self, word: &str) -> u32 {
        eventually(DEADLINE, || {
            let shown = self.shown();
            let digits = |rest: &str| {
                let end = rest.find(|c: char| !c.is_ascii_digit())?;
                rest[..end].parse().ok()
            };
            let mut places = shown.match_indices(word);
            let number = places.find_map(|(at, _)| digits(shown[at + word.len()..].trim_start()));
            ready(number.ok_or_else(|| last_of(&shown)))
        })
        .await
    }

    /// Waits for the end of the program.
    pub(crate) async fn ended(&mut self) -> i32 {
        let status = eventually(DEADLINE, || ready(self.process.try_wait())).await;
        status.code().unwrap_or_else(|| panic!("{status}"))
    }
}

/// A screen that refreshes is long.
fn last_of(shown: &str) -> String {
    let characters: Vec<char> = shown.chars().collect();
    characters[characters.len().saturating_sub(1000)..]
        .iter()
        .collect()
}
